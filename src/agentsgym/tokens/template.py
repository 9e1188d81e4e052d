"""A tokenizer's chat template and the arguments that are passed to every rendering."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from agentsgym.tokens.encoding import is_theirs
from agentsgym.tokens.skeleton import Skeletons
from agentsgym.tokens.syntax import names_read
from agentsgym.tokens.template_cost import check_cost
from agentsgym.types import Message, Tokenizer
from agentsgym.types.text import visible

logger = logging.getLogger(__name__)

# Stands for a message's text. Plain letters, so that no template trims or escapes them.
PROBE = "agentsgymprobe"

# Limits on a template's output: a constant, its own length per message, and copies of contents.
_FREE = 1_000_000
_GROWTH = 20

# Arguments of `apply_chat_template` that a codec must set itself, or that return no text.
_OURS = frozenset(
    {
        "conversation",
        "messages",
        "tokenize",
        "add_generation_prompt",
        "continue_final_message",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
        "sanitize_control_tokens",
    }
)
# Arguments that `apply_chat_template` accepts even if the template does not read them.
_READ_ANYWAY = frozenset({"chat_template", "tools", "documents"})


class TemplateFailed(ValueError):
    """A chat template did not render a conversation; the message says why."""


class ChatTemplate:
    """Renders conversations with a tokenizer's chat template.

    Args:
        tokenizer: a tokenizer with a chat template, or any tokenizer if `options` contain one.
        options: extra arguments of `apply_chat_template`, for instance
            `{"enable_thinking": False}`; `"chat_template"` replaces the tokenizer's own template.

    If a template expects a content as a list of parts (`[{"type": "text", "text": …}]`), it gets
    one.

    Raises ValueError for an option that callers may not set and for a template that drops the
    messages' text, and TemplateRefused (a ValueError) for one that costs too much.
    """

    def __init__(self, tokenizer: Tokenizer, options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        refused = sorted(_OURS & self._options.keys())
        if refused:
            raise ValueError(f"template option {refused[0]!r} cannot be set: rendering sets it")
        self.text = template_text(tokenizer, self._options)
        self._warn_unread()
        if self.text is not None:
            variables = {**getattr(tokenizer, "special_tokens_map", {}), **self._options}
            check_cost(self.text, variables)
        self._as_parts = False
        self._skeletons = Skeletons(None, {})
        self._as_parts = self._wants_parts()
        self._skeletons = Skeletons(*self._fixed())

    def render(self, messages: Sequence[Message]) -> str:
        """The conversation as text, with the generation prompt. Raises TemplateFailed."""
        text = self._skeletons.fill(messages)
        if text is None:
            text = self._rendered(messages)
            self._skeletons.learn(messages, text)
        return text

    def _fixed(self) -> tuple[str | None, dict[str, Any]]:
        """The template and what it is always rendered with; no template if that is not all."""
        named = {k: v for k, v in self._options.items() if k != "chat_template"}
        variables = {**getattr(self._tokenizer, "special_tokens_map", {}), **named}
        whole = not self._as_parts and _READ_ANYWAY.isdisjoint(named)
        whole = whole and is_theirs(self._tokenizer, "apply_chat_template")
        return (self.text if whole else None), variables

    def _rendered(self, messages: Sequence[Message]) -> str:
        conversation = [_in_parts(m) for m in messages] if self._as_parts else list(messages)
        try:
            rendered: Any = self._tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True, **self._options
            )
        except Exception as error:  # a template may refuse a conversation with any exception
            said = visible(f"{type(error).__name__}: {error}")[:500]
            raise TemplateFailed(f"the chat template cannot render it: {said}") from error
        text = str(rendered)
        given = sum(len(message["content"]) for message in messages)
        most = _FREE + len(self.text or "") * (len(messages) + 2) + _GROWTH * given
        if len(text) > most:
            raise TemplateFailed(
                f"the chat template wrote {len(text)} characters for {len(messages)} messages "
                f"with {given}"
            )
        return text

    @property
    def dated(self) -> bool:
        """Whether the template writes today's date."""
        return bool(self.text) and "strftime_now" in names_read(str(self.text))

    def default_system_prompt(self) -> str:
        """The template's own system prompt for a conversation without one; "" if it writes none or
        refuses such conversations."""
        user: Message = {"role": "user", "content": PROBE}
        given: Message = {"role": "system", "content": PROBE}
        try:
            alone, both = self.render([user]), self.render([given, user])
        except Exception:  # a template may refuse any conversation with any exception
            return ""
        before, between, *_ = [*both.split(PROBE), ""]
        head = alone.partition(PROBE)[0]
        if not (before and head.startswith(before) and head.endswith(between)):
            return ""
        return head[len(before) : len(head) - len(between)]

    def _wants_parts(self) -> bool:
        """Whether the template drops a content given as a string but shows a list of parts."""
        as_text = self._shown({"role": "user", "content": PROBE})
        if as_text:
            return False
        as_parts = self._shown(_in_parts({"role": "user", "content": PROBE}))
        if as_text is False and not as_parts:
            raise ValueError(
                "the chat template drops the text of a user's message, both as a string and as "
                "a list of text parts"
            )
        return bool(as_parts)

    def _shown(self, message: Any) -> bool | None:
        """Whether the template shows a message's text; None if it refuses the message."""
        try:
            return PROBE in self.render([message])
        except Exception:  # a template may refuse any conversation with any exception
            return None

    def _warn_unread(self) -> None:
        given = self._options.keys() - _READ_ANYWAY
        unread = sorted(given - names_read(self.text)) if given and self.text else []
        if unread:
            logger.warning(
                "The chat template does not read these options, so they have no effect: %s.",
                ", ".join(map(repr, unread)),
            )


def log_defaults(template: ChatTemplate) -> None:
    """Log the texts that a template adds to prompts by itself, once for each template."""
    if template.text is None or template.text in _LOGGED:
        return
    _LOGGED.add(template.text)
    prompt = template.default_system_prompt()
    if prompt:
        logger.info("The chat template adds its own system prompt if there is none: %r", prompt)
    if template.dated:
        logger.info("The chat template writes today's date into prompts.")


_LOGGED: set[str] = set()


def _in_parts(message: Message) -> dict[str, Any]:
    return {"role": message["role"], "content": [{"type": "text", "text": message["content"]}]}


def template_text(tokenizer: Tokenizer, options: Mapping[str, Any]) -> str | None:
    """The text of the template that renders: the one in `options`, else the tokenizer's own (the
    default one of several). None if there is none or if it cannot be found."""
    named = options.get("chat_template")
    own = tokenizer.chat_template
    known = own if isinstance(own, Mapping) else {"default": own}
    found = known.get(named or "default", named)
    return found if isinstance(found, str) and found else None
