"""TRL's training chat templates, which replace templates that rewrite history."""

import logging
from collections.abc import Mapping
from typing import Any

from agentsgym.tokens import inspect_tokenizer

logger = logging.getLogger(__name__)


def template_options(
    tokenizer: Any, choice: str, extra: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The arguments of every rendering: those `given`, and for "training" TRL's template for this
    tokenizer (None: there is nothing to render).

    Raises ValueError if TRL has no such template.
    """
    options = dict(extra or {})
    if choice == "training" and tokenizer is not None:
        text = training_template(tokenizer)
        if text is not None:
            options["chat_template"] = text
    return options


def training_template(tokenizer: Any) -> str | None:
    """TRL's training template for the tokenizer, which renders the same conversation but only
    appends; None if the tokenizer's own template already does.

    Raises ValueError if TRL has no training template for it.
    """
    from trl.chat_template_utils import get_training_chat_template

    if not tokenizer.chat_template:
        raise ValueError("chat_template='training': this tokenizer has no chat template")
    try:
        text: str | None = get_training_chat_template(tokenizer)
    except ValueError as error:
        raise ValueError(
            "chat_template='training': TRL brings no training template for this tokenizer's; "
            "leave it 'own', or give a template's text in chat_template_kwargs"
        ) from error
    return text


def tell_about(tokenizer: Any, options: Mapping[str, Any]) -> None:
    """Log the properties of a tokenizer and its template that matter for training; as a warning if
    a text can forge a turn."""
    check = inspect_tokenizer(tokenizer, options)
    level = logging.WARNING if check.forgeable else logging.INFO
    for remark in check.remarks:
        logger.log(level, "Tokenizer: %s.", remark)
