"""How a run's conversations are rendered: the chat template and its options."""

from collections.abc import Callable
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.runs.settings import RunConfig
from agentsgym.tokens import inspect_tokenizer
from agentsgym.tokens.template import unread_options


def template_remarks(config: RunConfig, tokenizer: Any) -> list[str]:
    """What a user should know of a model's chat template before training. Raises ConfigError if
    the section asks for a template that there is not."""
    try:
        check = inspect_tokenizer(tokenizer, rendering(config, tokenizer))
    except ValueError as error:
        raise ConfigError(f"the chat template of {config.model.path}: {error}") from None
    if not check.has_template:
        return ["the model has no chat template: prompts and actions are joined as plain text"]
    dropped = "parts of earlier turns" if check.append_only is False else "earlier thoughts"
    if False in (check.append_only, check.thoughts_append_only):
        return [
            f"the chat template drops {dropped}: each time a new row begins, and training takes "
            "longer; model.chat_template=training, or a .jinja file, may keep them"
        ]
    return []


def rendering(config: RunConfig, tokenizer: Any) -> dict[str, Any]:
    """The arguments of every rendering in an evaluation; `tokenizer` is None for a text-only
    agent. Raises ConfigError."""
    from agentsgym.training.chat_templates import template_options

    choice = "own" if config.model.template_file is not None else config.model.chat_template
    try:
        return template_options(tokenizer, choice, config.model.chat_template_kwargs)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def evaluated_rendering(
    config: RunConfig, tokenizer: Any, note: Callable[[str], None]
) -> dict[str, Any]:
    """`rendering`, with a note about options that have no effect."""
    options = rendering(config, tokenizer)
    if tokenizer is None and options:
        note("chat_template_kwargs: no effect, for this agent's conversations are not rendered")
    elif tokenizer is not None:
        for name in unread_options(tokenizer, options):
            note(f"chat_template_kwargs: the chat template does not read {name!r}")
    return options
