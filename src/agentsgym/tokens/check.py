"""Inspects a tokenizer and its chat template before a model is trained with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentsgym.tokens.codec import Codec, codec_for
from agentsgym.tokens.plain import PlainCodec, end_of_text
from agentsgym.tokens.template import LOOK_UP, TemplateFailed, calling
from agentsgym.tokens.tree import Tree
from agentsgym.types import Answer, Message, Tokenizer

_PLAIN = "Is it an animal?"
_THOUGHT = "<think>\nhm\n</think>\n\nIs it an animal?"


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """How a tokenizer and its chat template treat a conversation of several turns.

    `append_only` says whether a conversation of plain answers stays one row,
    `thoughts_append_only` whether one of answers with thoughts (`<think>`) does; None if the
    template refuses the conversation. `forgeable` lists the control tokens that a text can forge
    because the tokenizer cannot encode them as ordinary text. `stops` lists the tokens at which an
    engine ends an answer, besides the model's generation config. `default_system_prompt` is the
    template's text for a conversation without a system prompt, `dated` whether it writes today's
    date.
    """

    has_template: bool
    append_only: bool | None = True
    thoughts_append_only: bool | None = True
    forgeable: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    default_system_prompt: str = ""
    dated: bool = False


def inspect_tokenizer(
    tokenizer: Tokenizer, template_options: Mapping[str, Any] | None = None
) -> TokenCheck:
    """Test a tokenizer and its chat template on a few short conversations.

    Raises ValueError, as `codec_for` does, for a template that cannot be used.
    """
    codec = codec_for(tokenizer, template_options)
    ends = sorted({*codec.ends, *end_of_text(tokenizer)})
    stops = tuple(tokenizer.decode([number]) for number in ends)
    if isinstance(codec, PlainCodec):
        return TokenCheck(False, forgeable=tuple(codec.control.unspellable()), stops=stops)
    return TokenCheck(
        True,
        append_only=_only_appends(codec, _PLAIN),
        thoughts_append_only=_only_appends(codec, _THOUGHT),
        forgeable=tuple(codec.control.unspellable()),
        stops=stops,
        default_system_prompt=codec.template.default_system_prompt(),
        dated=codec.template.dated,
    )


def _only_appends(codec: Codec, answer: str) -> bool | None:
    tree = Tree(codec)
    try:
        tree.observe([Message("user", "Go.")])
        for step in range(3):
            tree.act(Answer(Message("assistant", answer)))
            tree.observe([Message("user", f"No, {step}.")])
    except Exception:  # a template may refuse any conversation with any exception
        return None
    return not tree.rewritten


@dataclass(frozen=True, slots=True)
class CallCheck:
    """How a chat template treats calls of tools.

    `fault` says why it cannot be used with tools; "" if it can. `families` are models that write
    calls as it does. `single` and `several` say whether one call, and two in one answer, are read
    as they were written. `rewrites` is what the template changes of a call, its result and the next
    call, as in `Row.rewrites`; "" if they stay one row.
    """

    fault: str = ""
    families: str = ""
    single: bool = False
    several: bool = False
    rewrites: str = ""


def inspect_calls(
    tokenizer: Tokenizer, template_options: Mapping[str, Any] | None = None
) -> CallCheck:
    """Test calls of tools with a tokenizer and its chat template."""
    try:
        codec = codec_for(tokenizer, template_options).with_tools([LOOK_UP])
    except ValueError as error:
        return CallCheck(str(error))
    single, several = (_are_read(codec, count) for count in (1, 2))
    rewrites = _rewritten_call(codec) if single else ""
    return CallCheck("", codec.call_families, single, several, rewrites)


def _are_read(codec: Codec, count: int) -> bool:
    """Whether calls are read as they were written."""
    message = calling("a\n<b>", count=count)[1]
    try:
        read, _ = codec.answer(codec.encode_answer(message))
    except TemplateFailed:
        return False
    return read.tool_calls == message.tool_calls


def _rewritten_call(codec: Codec) -> str:
    """What the template changes of a call and its result when the next ones follow."""
    messages = calling()[:1]
    text = codec.open(messages).text
    for step in range(2):
        _, call, result = calling("a", step)
        ids = codec.encode_answer(call, ended=True)
        messages += [codec.answer(ids, step)[0], result]
        bridge = codec.bridge(text, messages, ids)
        if bridge.delta is None:
            return bridge.rewrites
        text = bridge.text
    return ""
