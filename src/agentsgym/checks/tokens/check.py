"""check_tokens: what the library records of conversations with a tokenizer."""

from collections.abc import Iterator, Mapping
from typing import Any

from agentsgym.checks.context import tasks_of
from agentsgym.checks.players import RandomPlayer
from agentsgym.checks.tokens.conversation import Conversation, conversation_of
from agentsgym.checks.tokens.forgery import forged_tokens
from agentsgym.checks.tokens.report import TokenReport
from agentsgym.checks.tokens.row_breaks import Marks
from agentsgym.checks.tokens.speaker import Speaker
from agentsgym.checks.tokens.stability import stability
from agentsgym.checks.tokens.talk import SYSTEM_PROMPT, Answers, ScriptedTalk
from agentsgym.envs.base import MultistepEnv
from agentsgym.tokens import TemplateCodec, inspect_tokenizer
from agentsgym.tokens.syntax import names_read
from agentsgym.types import Tokenizer

_WAYS = ((False, "plain answers"), (True, "answers that think"))
_TOOL = "agentsgym_lookup"
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": _TOOL,
            "description": "Looks something up.",
            "parameters": {
                "type": "object",
                "properties": {"key": {"type": "string", "description": "what"}},
                "required": ["key"],
            },
        },
    }
]


def check_tokens(
    tokenizer: Tokenizer,
    template_options: Mapping[str, Any] | None = None,
    env: MultistepEnv | None = None,
) -> TokenReport:
    """Play scripted conversations with a tokenizer and report what is recorded.

    `template_options` are extra arguments of its chat template, as `codec_for` takes them. With
    `env`, also an episode of this environment is played, by a random player.

    Raises ValueError, as `codec_for` does, for a template that cannot be used.
    """
    options = dict(template_options or {})
    check = inspect_tokenizer(tokenizer, options)
    talk = with_tokenizer(ScriptedTalk(), tokenizer, options)
    return TokenReport(
        check=check,
        conversations=(*_talks(talk), *(_played(env, tokenizer, options) if env else ())),
        variants=tuple(_variants(tokenizer, options)),
        forged=forged_tokens(talk),
        stability=stability(tokenizer),
    )


def _talks(env: MultistepEnv) -> Iterator[Conversation]:
    """The scripted conversation with plain answers, and with answers that think."""
    for thinks, name in _WAYS:
        yield from _play(name, env, {}, Speaker(Answers(), thinks), Marks())


def _variants(tokenizer: Tokenizer, options: Mapping[str, Any]) -> Iterator[Conversation]:
    """It with a system prompt, and with tools if the template reads them."""
    config = {"system_prompt": SYSTEM_PROMPT}
    env = with_tokenizer(ScriptedTalk(None, config), tokenizer, options)
    yield from _play("a system prompt", env, {}, Speaker(Answers()), Marks(system=SYSTEM_PROMPT))
    codec = env.codec
    if isinstance(codec, TemplateCodec) and "tools" in names_read(codec.template.text or ""):
        env = with_tokenizer(ScriptedTalk(), tokenizer, {**options, "tools": _TOOLS})
        yield from _play("tools", env, {}, Speaker(Answers()), Marks(tools=_TOOL))


def _played(
    env: MultistepEnv, tokenizer: Tokenizer, options: Mapping[str, Any]
) -> Iterator[Conversation]:
    """An episode of an environment, with plain answers and with answers that think."""
    task = tasks_of(env.get_eval_dataset())[0]
    env = with_tokenizer(env, tokenizer, options)
    marks = Marks(system=str(env.config["system_prompt"] or ""))
    for thinks, name in _WAYS:
        speaker = Speaker(RandomPlayer(0, nonsense=0.0), thinks)
        yield from _play(f"{env.name}, {name}", env, task, speaker, marks)


def _play(
    name: str, env: MultistepEnv, task: Any, speaker: Speaker, marks: Marks
) -> Iterator[Conversation]:
    """The record of a conversation; none of thoughts that the prompt turns off."""
    rollout = speaker.play(env, task)
    if not (speaker.thinks and speaker.muted):
        seen = Marks(tuple(speaker.thoughts), marks.system, marks.tools)
        yield conversation_of(name, env, rollout, speaker.said, seen)


def with_tokenizer(
    env: MultistepEnv, tokenizer: Tokenizer, options: Mapping[str, Any]
) -> MultistepEnv:
    """The environment with a tokenizer, whose own template is not tried if another replaces it."""
    env.tokenizer = tokenizer
    env.set_template_options(options)
    return env
