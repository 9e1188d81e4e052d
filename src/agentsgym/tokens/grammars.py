"""The form that a program's call demands of its answer, as a grammar of what may be sampled: JSON
by a schema, a text by a regular expression, or the call of a tool with arguments by its schema.

JSON is written as Python's `json.dumps` writes it, so that white space is no choice, and a call as
the chat template writes one. Control tokens stand only where the template writes them.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from agentsgym.tokens.codec import Codec
from agentsgym.tokens.control import added_tokens
from agentsgym.tokens.template import PROBE, TemplateFailed
from agentsgym.types import Message, ModelCall
from agentsgym.types.messages import count_calls, tool_call
from agentsgym.types.names import install_command
from agentsgym.types.supports import compact

logger = logging.getLogger(__name__)

_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_ARGUMENTS = re.compile(rf'\{{\s*"{PROBE}"\s*:\s*0\s*\}}')
_MOST = 1 << 16
"""Characters of a schema, or of a regular expression: many optional keys take quadratic time."""
_NO_IDS = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Grammar:
    """The answers that a grammar in llguidance's form allows, with the end of their turn: beside
    `Choices`, what a request may be held to."""

    source: str
    whole = False
    longest = 0
    """They may be of any length, and are cut where there is no more room."""

    @property
    def body(self) -> dict[str, Any]:
        """What a request to `serve-model` says of it."""
        return {"grammar": self.source}

    def walk(self, tokenizer: Any, vocabulary: int) -> "GrammarWalk":
        """The beginning of an answer by a model of so many ids. Raises ValueError for a grammar
        that allows none, and without the package."""
        return GrammarWalk(_matcher(self.source, tokenizer).deep_copy(), vocabulary)


class GrammarWalk:
    """An answer that is being chosen, token by token. `allowed` are the ids that may come next,
    ascending or `compact`; none at the end. What the grammar spells out has one spelling, the
    tokenizer's. `error` says why it cannot go on."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary
        self.allowed, self.error = _NO_IDS, ""
        self._look()

    def take(self, token: int) -> bool:
        """Go on with an allowed id; returns whether the answer is complete."""
        self._matcher.consume_token(token)
        self._look()
        return not len(self.allowed)

    def forced(self) -> list[int]:
        """Go on for as long as one id alone may come next; returns these ids."""
        taken: list[int] = []
        while len(self.allowed) == 1 and self.allowed[0] >= 0:
            ahead = self._ahead or [int(self.allowed[0])]
            self._matcher.consume_tokens(ahead)
            taken += ahead
            self._look()
        return taken

    def _look(self) -> None:
        matcher, self.allowed, self._ahead = self._matcher, _NO_IDS, list[int]()
        if not matcher.is_stopped():
            self._ahead = matcher.compute_ff_tokens()
            if self._ahead:
                self.allowed = np.array(self._ahead[:1], np.int32)
            else:
                bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
                mask = np.unpackbits(bits, bitorder="little")[: self._vocabulary].astype(np.bool_)
                self.allowed = compact(mask) if mask.any() else _NO_IDS
        if matcher.is_error() or not (len(self.allowed) or matcher.is_stopped()):
            self.allowed, self.error = _NO_IDS, _fault(matcher)


def _fault(matcher: Any) -> str:
    reason = matcher.get_error().partition("\n")[0]
    if reason in ("", "NoExtensionBias"):
        reason = "no text goes on to an answer of it"
    return f"the form that is demanded of the answer cannot be granted: {reason[:300]}"


@lru_cache(maxsize=128)
def _matcher(source: str, tokenizer: Any) -> Any:
    """The beginning of all answers."""
    spelling = _spelling(tokenizer)
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(verbose_errors=False)
    matcher = LLMatcher(spelling, source, log_level=0, limits=limits)
    begun = GrammarWalk(matcher.deep_copy(), spelling.vocab_size)
    begun.forced()
    if begun.error:
        raise ValueError(begun.error)
    return matcher


@lru_cache(maxsize=8)
def _spelling(tokenizer: Any) -> Any:
    """The tokenizer as llguidance has it, in which no text spells a control token."""
    try:
        from llguidance import LLTokenizer
    except ImportError:
        raise ValueError(
            f"a form of the answer needs the extra 'grammar': {install_command('grammar')}"
        ) from None
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ValueError("a form of the answer needs a tokenizer of the package tokenizers")
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    parts |= {"padding": None, "truncation": None}
    for token in parts["added_tokens"]:
        token["special"] = token["special"] or bool(token["content"].strip())
    return LLTokenizer(json.dumps(parts), eos_token=tokenizer.eos_token_id)


# -- what a call demands ---------------------------------------------------------------------------


def grammar_of(codec: Codec, tokenizer: Any, call: ModelCall, *, exact: bool) -> Grammar | None:
    """The grammar of the answers that have the form which a call demands; None if it demands none.
    An engine that is not `exact`, and a template whose calls have no JSON, cannot grant one: then
    the demand of a call of a tool has no effect, as a warning says. Raises ValueError for others,
    for a form that no answer has, and without the package."""
    if call.form is None:
        return None
    kind, _ = call.form
    codec = codec.with_tools(call.tools)
    tools = json.dumps([tool["function"] for tool in call.tools])
    calls = _calls(codec, tokenizer, tools, count_calls(call.messages))
    cannot = "the engine does not say what each token was chosen from" if not exact else ""
    if call.tools and not calls:
        cannot = cannot or "the chat template writes no call with one JSON object as arguments"
    if cannot and kind == "call":
        _warn_free(cannot)
        return None
    if cannot:
        raise ValueError(f"the form that is demanded of the answer cannot be granted: {cannot}")
    source = _source(codec, tokenizer, call.form, calls)
    _matcher(source, tokenizer)
    return Grammar(source)


@lru_cache(maxsize=16)
def _warn_free(reason: str) -> None:
    logger.warning("A tool_choice that demands a call has no effect: %s.", reason)


_Call = tuple[str, str, str, str]
"""A call's name, the schema of its arguments, and Lark for what stands before and after them."""


@lru_cache(maxsize=256)
def _calls(codec: Codec, tokenizer: Any, tools: str, number: int) -> tuple[_Call, ...]:
    """How each tool is called; none if some has arguments that are no JSON object."""
    calls = []
    for function in json.loads(tools):
        name, schema = function["name"], function.get("parameters") or {}
        call = Message("assistant", "", (tool_call(number, name, {PROBE: 0}),))
        try:
            ids = codec.encode_answer(call, ended=True)
        except TemplateFailed:
            return ()
        before, found, after = _divided(_pieces(tokenizer, ids))
        if not found:
            return ()
        calls.append((name, json.dumps({"type": "object", **schema}), before, after))
    return tuple(calls)


def _pieces(tokenizer: Any, ids: Sequence[int]) -> list[int | str]:
    """Control tokens as ids, and what stands between them as text."""
    control = {number for _, (number, _) in added_tokens(tokenizer)}
    pieces: list[int | str] = []
    for own, run in groupby(ids, control.__contains__):
        some = list(run)
        pieces += some if own else [tokenizer.decode(some)]
    return pieces


def _divided(pieces: Sequence[int | str]) -> tuple[str, bool, str]:
    """Lark for what stands before and after the arguments, and whether they are there."""
    for at, piece in enumerate(pieces):
        if isinstance(piece, str) and (found := _ARGUMENTS.search(piece)):
            before = [*pieces[:at], piece[: found.start()]]
            return _lark(before), True, _lark([piece[found.end() :], *pieces[at + 1 :]])
    return "", False, ""


def _lark(pieces: Sequence[int | str]) -> str:
    spelled = (json.dumps(p) if isinstance(p, str) else f"<[{p}]>" for p in pieces if p != "")
    return " ".join(spelled)


@lru_cache(maxsize=256)
def _source(codec: Codec, tokenizer: Any, form: tuple[str, str], calls: tuple[_Call, ...]) -> str:
    """llguidance's form of a grammar: its start, and parts by their names."""
    kind, wanted = form
    answers, parts = [], []
    if kind == "call":
        calls = tuple(one for one in calls if wanted in ("", one[0]))
    else:
        if not codec.turn_end:
            raise ValueError("the tokenizer has no token that ends a turn")
        answers.append(f"@answer {_lark(codec.turn_end[-1:])}")
        parts.append({"name": "answer", **_part(kind, wanted)})
    for number, (_, schema, before, after) in enumerate(calls):
        answers.append(f"{before} @call{number} {after}")
        parts.append({"name": f"call{number}", **_part("json", schema)})
    start = {"lark_grammar": f"start: {' | '.join(answers)}"}
    return json.dumps({"grammars": [start, *parts]})


def _part(kind: str, wanted: str) -> Mapping[str, Any]:
    """JSON by a schema, or a text by a regular expression. Raises ValueError for a long one."""
    if len(wanted) > _MOST:
        raise ValueError(
            f"a schema or regular expression of {len(wanted)} characters cannot be demanded; at "
            f"most {_MOST} are taken"
        )
    if kind == "json":
        return {"json_schema": {**json.loads(wanted), "x-guidance": _SPACING}}
    from llguidance import LLMatcher

    lark = json.loads(LLMatcher.grammar_from_regex(wanted))["grammars"][0]["lark_grammar"]
    return {"lark_grammar": lark}
