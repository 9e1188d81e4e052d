"""Control tokens, and texts that only spell them.

Invariant: nothing that stands in a message's content becomes a control token; only what the chat
template writes does. Before a conversation is rendered, each control token spelled in a content is
wrapped in a pair of marks (`mark`), so that it can be told from the template's own afterwards and a
template may still look for it; `encode` then encodes what is marked as ordinary text. A text
without any is encoded in one piece, as ever.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import nodes

from agentsgym.tokens.syntax import parse_template
from agentsgym.types import Message, Tokenizer

# Noncharacters of Unicode: no text is meant to hold them. One that does keeps them, marked.
_START, _END = "\ufdd0", "\ufdd1"
_MARKS = frozenset({_START, _END})


@dataclass(frozen=True, slots=True)
class Written:
    """What a template writes of its own: `around` all messages of a plain conversation, and
    `after` an answer. Both are empty where it is not known."""

    around: str = ""
    after: str = ""


class ControlTokens:
    """The control tokens of a tokenizer and its chat template.

    In what others say these are all special tokens and the added tokens that the template names
    or writes. In what the assistant says, added tokens that only structure an answer (`<think>`)
    stay tokens: the model sampled them as such.

    Args:
        tokenizer: any tokenizer; without `added_tokens_decoder`, its special ids are all it has.
        template: the text of its chat template.
        written: what the template writes of its own around harmless messages.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: str | None = None, written: "Written | None" = None
    ) -> None:
        self._tokenizer = tokenizer
        known = dict(added_tokens(tokenizer))
        special = {text for text, (_, is_special) in known.items() if is_special}
        written = written or Written()
        named = _named_in(template, written.around, known.keys())
        said = special | _turn_markers(template, written, named)
        self._id_of = {text: known[text][0] for text in special | named}
        self.ids = frozenset(self._id_of.values())
        self._unknown = getattr(tokenizer, "unk_token_id", None)
        self._theirs = _pattern(frozenset(special | named))
        self._own = _pattern(frozenset(said))
        self._marked = re.compile(f"{_START}({self._theirs.pattern}){_END}|[{_START}{_END}]")
        # Some added tokens are looked for after normalization, which may turn letters into one.
        self._normalize = _normalizer(tokenizer)
        self._newline = self._ids_of("\n")
        after = self._ids_of("\na")
        self._guarded = after != self._newline + self._ids_of("a") and self._follows(after)
        self._spelled: dict[str, tuple[int, ...] | None] = {}

    def unspellable(self) -> list[str]:
        """The control tokens that this tokenizer can't encode as ordinary text."""
        return sorted(token for token in self._id_of if self._spell(token) is None)

    def mark(self, content: str, own: bool = False) -> str:
        """`content` with the control tokens marked that it spells; `own` for the assistant's."""
        pattern = self._own if own else self._theirs
        if self._normalize is not None:
            normal = self._normalize(content)
            if len(pattern.findall(normal)) > len(pattern.findall(content)):
                content = normal
        return pattern.sub(f"{_START}\\g<0>{_END}", content)

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text made of marked contents and what a template wrote around them."""
        if _START not in text and _END not in text:
            return self._ids_of(text)
        pieces = self._marked.split(text)
        return tuple(
            itertools.chain(
                self._ids_of(pieces[0]),
                *(
                    self._literal(piece) if number % 2 else self._inside(piece)
                    for number, piece in enumerate(pieces[1:], 1)
                    if piece
                ),
            )
        )

    def without_leading(self, text: str, last: int) -> str:
        """What of `text` is left where its control tokens, up to the one with the id `last`, are
        there already; all of it where it does not begin with such a run."""
        if last not in self.ids:
            return text
        return next((text[end:] for number, end in self._leading(text) if number == last), text)

    def leading_ids(self, text: str) -> list[int]:
        """The ids of the control tokens that `text` begins with."""
        return [number for number, _ in self._leading(text)]

    def leading_tokens(self, text: str) -> list[str]:
        """The control tokens that `text` begins with."""
        ends = [0, *(end for _, end in self._leading(text))]
        return [text[start:end] for start, end in itertools.pairwise(ends)]

    def _leading(self, text: str) -> Iterator[tuple[int, int]]:
        """The same, each with the place where its token ends in `text`."""
        end = 0
        while (found := self._theirs.match(text, end)) and found[0] not in _MARKS:
            end = found.end()
            yield self._id_of[found[0]], end

    def _literal(self, token: str) -> tuple[int, ...]:
        """A control token as ordinary text; as itself where the tokenizer knows no other way."""
        return self._spell(token) or self._ids_of(token)

    def _spell(self, token: str) -> tuple[int, ...] | None:
        """Ids that read `token` without being it, from its two halves; None where there are none.

        `split_special_tokens` would do for special ones alone, and switches a state that all
        threads share.
        """
        if token in _MARKS:
            return self._ids_of(token)
        if token not in self._spelled:
            halves = (
                self._inside(token[:cut]) + self._inside(token[cut:])
                for cut in range(1, len(token))
            )
            self._spelled[token] = next(filter(self._is_plain, halves), None)
        return self._spelled[token]

    def _is_plain(self, ids: Iterable[int]) -> bool:
        return (self.ids - {self._unknown}).isdisjoint(ids)

    def _inside(self, text: str) -> tuple[int, ...]:
        """Ids of what stands within a text: some tokenizers put a space before what begins one."""
        if self._guarded:
            ids = self._ids_of("\n" + text)
            if self._follows(ids):
                return ids[len(self._newline) :]
        return self._ids_of(text)

    def _follows(self, ids: tuple[int, ...]) -> bool:
        return ids[: len(self._newline)] == self._newline

    def _ids_of(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))


def added_tokens(tokenizer: Tokenizer) -> Iterator[tuple[str, tuple[int, bool]]]:
    """Text, id and whether it is special, of all added tokens but those of white space alone,
    which templates and contents hold as ordinary text. A tokenizer that only decodes has none."""
    added: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    special = set(getattr(tokenizer, "all_special_ids", ()))
    texts = {number: str(token.content) for number, token in added.items()}
    texts |= {number: tokenizer.decode([number]) for number in special - texts.keys()}
    for number, text in texts.items():
        if text and not text.isspace():
            marked = number in added and bool(added[number].special)
            yield text, (number, marked or number in special)


def _normalizer(tokenizer: Tokenizer) -> Callable[[str], str] | None:
    """The tokenizer's normalizer where added tokens are looked for in what it gives."""
    added: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    backend = getattr(tokenizer, "backend_tokenizer", None)
    normalizer = getattr(backend, "normalizer", None)
    if normalizer is None or not any(token.normalized for token in added.values()):
        return None
    normalize: Callable[[str], str] = normalizer.normalize_str
    return normalize


def _named_in(template: str | None, around: str, added: Iterable[str]) -> set[str]:
    """The added tokens that stand in a template's text or in what it wrote."""
    tree = parse_template(template) if template else None
    if tree is None:
        return set()
    literals = itertools.chain(
        (node.data for node in tree.find_all(nodes.TemplateData)),
        (str(node.value) for node in tree.find_all(nodes.Const)),
    )
    text = "\0".join((*literals, around))
    return {token for token in added if token in text}


def _turn_markers(template: str | None, written: Written, named: set[str]) -> set[str]:
    """Those of `named` that begin or end turns: the template writes them around messages, and
    does not look for them in what was said unless they follow every answer."""
    around = written.around if written.after else "\0".join(named)
    return {
        token
        for token in named
        if token in written.after or (token in around and token not in _looked_for(template))
    }


@lru_cache(maxsize=64)
def _looked_for(template: str | None) -> str:
    """The texts that a template compares with, splits at or removes, joined."""
    tree = parse_template(template) if template else None
    if tree is None:
        return ""
    looking: list[nodes.Node] = list(tree.find_all(nodes.Compare))
    looking += [call for call in tree.find_all(nodes.Call) if isinstance(call.node, nodes.Getattr)]
    return "\0".join(str(const.value) for node in looking for const in node.find_all(nodes.Const))


@lru_cache(maxsize=64)
def _pattern(tokens: frozenset[str]) -> re.Pattern[str]:
    """What finds the longest of `tokens`, or one of our own marks, at the first place there is."""
    return re.compile(_expression(tokens | _MARKS))


def _expression(words: Iterable[str]) -> str:
    """A regular expression for any of `words`, as a tree: thousands cost no more than a few."""
    heads: dict[str, set[str]] = {}
    for word in words:
        heads.setdefault(word[:1], set()).add(word[1:])
    optional = heads.pop("", None) is not None
    options = [re.escape(head) + _rest(tails) for head, tails in sorted(heads.items())]
    body = f"(?:{'|'.join(options)})" if options else ""
    return body + "?" * (optional and bool(options))


def _rest(tails: set[str]) -> str:
    first, last = min(tails), max(tails)
    length = next((i for i, letter in enumerate(first) if letter != last[i]), len(first))
    return re.escape(first[:length]) + _expression({tail[length:] for tail in tails})


def written_around(render: Callable[[Sequence[Message]], str], probe: str) -> Written:
    """What a template writes around harmless contents (`probe`), with and without a system
    message, and with the generation prompt; a conversation that it refuses tells nothing."""
    roles = ("system", "user", "assistant", "user")
    with_system = _parts_around(render, probe, roles)
    parts = _parts_around(render, probe, roles[1:])
    return Written("\0".join((*with_system, *parts)), (parts or with_system or [""] * 4)[-2])


def _parts_around(
    render: Callable[[Sequence[Message]], str], probe: str, roles: Sequence[str]
) -> list[str]:
    try:
        text = render([{"role": role, "content": probe} for role in roles])
    except Exception:  # a template may refuse any conversation with any exception
        return []
    parts = text.split(probe)
    return parts if len(parts) == len(roles) + 1 else []
