"""Control tokens, and texts that only spell them.

Invariant: only the chat template writes control tokens; the content of a message never becomes
one. Before a conversation is rendered, each control token spelled in a content is put between a
pair of marks (`mark`). The marks distinguish it from the template's own tokens, and a template can
still find it. `encode` then encodes the marked parts as ordinary text. Where the template, or
another text, could complete a text to a control token, an empty pair of marks at both ends divides
them. A text without marks is encoded in one piece.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import nodes

from agentsgym.tokens.template import ChatTemplate, TemplateText, parse_template
from agentsgym.types import Tokenizer

# Noncharacters of Unicode: no text should contain them. If a text does, they are kept and marked.
_START, _END = "\ufdd0", "\ufdd1"
_MARKS = frozenset({_START, _END})
_CUT = _START + _END
# Keys that templates read, where they stand in messages and tools, and what is below some of them.
_KEYS: dict[str, frozenset[str]] = {
    "message": frozenset(
        [
            *("role", "content", "name", "tool_calls", "tool_call_id", "id", "type", "function"),
            *("arguments", "description", "parameters"),
        ]
    ),
    "schema": frozenset(["type", "properties", "required", "items", "enum", "description"]),
}
_BELOW = {
    ("message", "arguments"): "data",
    ("message", "parameters"): "schema",
    ("schema", "properties"): "names",
}


class ControlTokens:
    """The control tokens of a tokenizer and its chat template.

    In messages of other roles, these are all special tokens and the added tokens that the template
    names or writes. In the assistant's messages, added tokens that only structure an answer
    (`<think>`) stay tokens: the model sampled them as such.

    Args:
        tokenizer: any tokenizer; without `added_tokens_decoder`, only its special ids count.
        template: its chat template, if it has one.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None = None) -> None:
        self._tokenizer = tokenizer
        known = dict(added_tokens(tokenizer))
        special = {text for text, (_, is_special) in known.items() if is_special}
        written = template.written if template else TemplateText()
        source = template.source if template else None
        mentions = _tokens_in(source, written.around, known.keys())
        marking = special | _turn_markers(source, written, mentions)
        # Some added tokens are searched in the normalized text, and normalizing may create one.
        self._normalize = _normalizer(tokenizer) or str
        self._id_of = {
            form: known[text][0] for text in special | mentions for form in self._forms(text)
        }
        self.ids = frozenset(self._id_of.values())
        self._unknown = getattr(tokenizer, "unk_token_id", None)
        theirs = frozenset(self._id_of)
        self._theirs = _pattern(theirs)
        self._own = _pattern(frozenset(form for text in marking for form in self._forms(text)))
        self._marked = re.compile(f"{_START}({self._theirs.pattern}|){_END}|[{_START}{_END}]")
        self._beginnings, self._endings, self._between = _parts(
            theirs if template else frozenset(), source
        )
        self._longest = max(map(len, theirs), default=0)
        self._newline = self._ids_of("\n")
        after = self._ids_of("\na")
        self._guarded = after != self._newline + self._ids_of("a") and self._follows(after)
        self._spelled: dict[str, tuple[int, ...] | None] = {}

    def unspellable(self) -> list[str]:
        """The control tokens that this tokenizer cannot encode as ordinary text."""
        return sorted(token for token in self._id_of if self._spell(token) is None)

    def mark(self, content: str, own: bool = False) -> str:
        """`content` with the control tokens in it marked; `own` for the assistant's messages."""
        pattern = self._own if own else self._theirs
        normal = self._normalize(content)
        if normal != content and len(pattern.findall(normal)) > len(pattern.findall(content)):
            content = normal
        content = pattern.sub(_between_marks, content)
        core = content.strip()
        if any(map(self._is_open, self._forms(core))):
            return content.replace(core, f"{_CUT}{core}{_CUT}", 1)
        return content

    def mark_texts(self, value: Any, place: str = "message") -> Any:
        """A message or a tool with the control tokens in all its texts and keys marked, apart from
        the keys that a template reads."""
        if isinstance(value, str):
            return self.mark(value)
        if isinstance(value, list | tuple):
            return [self.mark_texts(one, place) for one in value]
        if not isinstance(value, Mapping):
            return value
        known, marked = _KEYS.get(place, frozenset()), {}
        for key, one in value.items():
            below = _BELOW.get((place, key), place) if key in known else "data"
            below = "schema" if place == "names" else below
            marked[key if key in known else self.mark_texts(key)] = self.mark_texts(one, below)
        return marked

    def _is_open(self, text: str) -> bool:
        """Whether what stands around a text could complete it to a control token."""
        return text in self._between or any(
            text[-size:] in self._beginnings or text[:size] in self._endings
            for size in range(2, min(self._longest, len(text) + 1))
        )

    def _forms(self, text: str) -> set[str]:
        """A text as it is and as the tokenizer normalizes it."""
        return {text, self._normalize(text)}

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text that consists of marked contents and a template's own text."""
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
        """`text` without its leading control tokens up to the one with the id `last`; unchanged if
        that token is not among the leading ones."""
        end = 0
        for token, number in self.leading(text):
            end += len(token)
            if number == last:
                return text[end:]
        return text

    def leading(self, text: str) -> list[tuple[str, int]]:
        """The control tokens that `text` begins with, and their ids."""
        tokens: list[tuple[str, int]] = []
        end = 0
        while (match := self._theirs.match(text, end)) and match[0] not in _MARKS:
            end = match.end()
            tokens.append((match[0], self._id_of[match[0]]))
        return tokens

    def first(self, text: str) -> int:
        """Where the first control token in `text` begins; its length if there is none."""
        matches = (match for match in self._theirs.finditer(text) if match[0] not in _MARKS)
        return next((match.start() for match in matches), len(text))

    def _literal(self, token: str) -> tuple[int, ...]:
        """A control token as ordinary text; as itself if the tokenizer has no other encoding."""
        return self._spell(token) or self._ids_of(token)

    def _spell(self, token: str) -> tuple[int, ...] | None:
        """Ids that decode to `token` without containing it, from two parts of its text; None if no
        split works.

        `split_special_tokens` would cover special tokens only, and sets a state that all threads
        share.
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
        """Ids of a text inside another one: some tokenizers put a space before a text's start."""
        if self._guarded:
            ids = self._ids_of("\n" + text)
            if self._follows(ids):
                return ids[len(self._newline) :]
        return self._ids_of(text)

    def _follows(self, ids: tuple[int, ...]) -> bool:
        return ids[: len(self._newline)] == self._newline

    def _ids_of(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))


def _between_marks(match: re.Match[str]) -> str:
    return f"{_START}{match[0]}{_END}"


def added_tokens(tokenizer: Tokenizer) -> Iterator[tuple[str, tuple[int, bool]]]:
    """Text, id and whether it is special, of all added tokens. Tokens of white space are left out:
    templates and contents use them as ordinary text. A tokenizer that only decodes has none."""
    added: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    special = set(getattr(tokenizer, "all_special_ids", ()))
    texts = {number: str(token.content) for number, token in added.items()}
    texts |= {number: tokenizer.decode([number]) for number in special - texts.keys()}
    for number, text in texts.items():
        if text and not text.isspace():
            marked = number in added and bool(added[number].special)
            yield text, (number, marked or number in special)


def _normalizer(tokenizer: Tokenizer) -> Callable[[str], str] | None:
    """The tokenizer's normalizer, if added tokens are searched in normalized text; else None."""
    added: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    backend = getattr(tokenizer, "backend_tokenizer", None)
    normalizer = getattr(backend, "normalizer", None)
    if normalizer is None or not any(token.normalized for token in added.values()):
        return None
    normalize: Callable[[str], str] = normalizer.normalize_str
    return normalize


def _literals(template: str | None) -> list[str]:
    """The texts in a template's source."""
    tree = parse_template(template) if template else None
    if tree is None:
        return []
    data = [node.data for node in tree.find_all(nodes.TemplateData)]
    return data + [str(node.value) for node in tree.find_all(nodes.Const)]


def _tokens_in(template: str | None, around: str, added: Iterable[str]) -> set[str]:
    """The added tokens that appear in a template's source or in its output."""
    text = "\0".join((*_literals(template), around))
    return {token for token in added if token in text}


@lru_cache(maxsize=64)
def _parts(
    tokens: frozenset[str], template: str | None
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The beginnings and the endings of tokens, of two letters or more, and what is between two
    parts of a token that stand in the template."""
    texts, sizes = _literals(template), range(1, max(map(len, tokens), default=0))
    before = {text[-size:] for text in texts for size in sizes}
    after = {text[:size] for text in texts for size in sizes}
    cuts = [(token, cut) for token in tokens for cut in range(1, len(token))]
    between = {
        token[cut:end]
        for token, cut in cuts
        if token[:cut] in before
        for end in range(cut + 1, len(token))
        if token[end:] in after
    }
    beginnings = {token[:cut] for token, cut in cuts if cut > 1}
    endings = {token[cut:] for token, cut in cuts if len(token) - cut > 1}
    return frozenset(beginnings), frozenset(endings), frozenset(between)


def _turn_markers(template: str | None, written: TemplateText, mentions: set[str]) -> set[str]:
    """The tokens in `mentions` that begin or end turns: the template writes them around messages,
    and either writes them after every answer or never searches a message for them."""
    around = written.around if written.after else "\0".join(mentions)
    return {
        token
        for token in mentions
        if token in written.after or (token in around and token not in _looked_for(template))
    }


@lru_cache(maxsize=64)
def _looked_for(template: str | None) -> str:
    """All texts that a template compares with, splits at or removes, joined."""
    tree = parse_template(template) if template else None
    if tree is None:
        return ""
    looking: list[nodes.Node] = list(tree.find_all(nodes.Compare))
    looking += [call for call in tree.find_all(nodes.Call) if isinstance(call.node, nodes.Getattr)]
    return "\0".join(str(const.value) for node in looking for const in node.find_all(nodes.Const))


@lru_cache(maxsize=64)
def _pattern(tokens: frozenset[str]) -> re.Pattern[str]:
    """Finds the longest of `tokens`, or one of our own marks, at the earliest position. It looks at
    first letters first, so that thousands stay cheap."""
    words = sorted(tokens | _MARKS, key=len, reverse=True)
    firsts = "".join(sorted({re.escape(word[0]) for word in words}))
    return re.compile(f"(?=[{firsts}])(?:{'|'.join(map(re.escape, words))})")
