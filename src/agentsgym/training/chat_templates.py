"""TRL's training chat templates, which replace templates that rewrite history."""

import logging
from collections.abc import Mapping
from typing import Any

from agentsgym.tokens import inspect_tokenizer

logger = logging.getLogger(__name__)


def template_options(
    tokenizer: Any, choice: str, extra: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The arguments of every rendering: `extra`, and for "training" TRL's template for this
    tokenizer (None: there is nothing to render), which renders the same conversation but only
    appends, unless the tokenizer's own does so already.

    Raises ValueError if TRL has no such template.
    """
    options = dict(extra or {})
    if choice != "training" or tokenizer is None:
        return options
    from trl.chat_template_utils import get_training_chat_template

    if not tokenizer.chat_template:
        raise ValueError("chat_template='training': this tokenizer has no chat template")
    try:
        text = get_training_chat_template(tokenizer)
    except ValueError as error:
        raise ValueError(
            "chat_template='training': TRL brings no training template for this tokenizer's; "
            "leave it 'own', or give a template's text in chat_template_kwargs"
        ) from error
    return options if text is None else options | {"chat_template": text}


def log_properties(tokenizer: Any, options: Mapping[str, Any]) -> None:
    """Warn of a tokenizer with which a text can forge a turn."""
    forgeable = inspect_tokenizer(tokenizer, options).forgeable
    if forgeable:
        logger.warning("A text can forge control tokens of this tokenizer: %s.", forgeable)
