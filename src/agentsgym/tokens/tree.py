"""The tree of a running rollout: what each step read and answered, and the context of the next one.

Invariant: the tokens before an answer are exactly the context that the agent saw when it sampled
the answer. A conversation grows by what the environment says (`observe`), or comes as a whole with
a program's call (`call`). What goes on after an earlier answer has the step of that answer as its
parent, and its own tokens are the template's text for the new messages. Where the template rewrites
what it had written, and in a conversation that goes on nowhere, its own tokens are the `whole`
context. `begins` says why a step begins a row (`Step`). A branch goes on with the tokens of its
path as they are, and a retry with those of the call that it repeats: no sampled token is encoded
again.
"""

import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from agentsgym.tokens.codec import Codec
from agentsgym.tokens.folding import folded
from agentsgym.types import Answer, Message, ModelCall, ToolSchema
from agentsgym.types.supports import NO_SUPPORTS, Supports, joined_supports

REASONS = {
    "history": "earlier turns were changed or dropped",
    "tools": "other tools were offered",
    "conversation": "another conversation began, as a sub-agent's",
    "branch": "an earlier answer was continued a second time",
    "retry": "the same conversation was sent again",
}
"""Why a program's call continues no row (`Row.begins`), in words."""

_Key = bytes
_NOWHERE = -1


@dataclass(slots=True, eq=False)
class Node:
    """What the agent reads, and then its answer, until the environment's answer makes it a `Step`.

    `row` has the ids of its context, which it may share with steps before and after it; its own
    tokens are those from `start` on, and from `acts` on its answer.
    """

    parent: int | None
    begins: str
    messages: tuple[Message, ...]
    row: "array[int]"
    start: int
    acts: int
    whole: bool
    rewrites: str = ""
    tools: tuple[ToolSchema, ...] = ()
    answer: Message | None = None
    sampled: bool = True
    policy_version: int = 0

    @property
    def recorded(self) -> dict[str, Any]:
        """What a `Step` has of it."""
        return {name: getattr(self, name) for name in _RECORDED}


_RECORDED = (
    *("parent", "begins", "messages", "whole", "rewrites"),
    *("tools", "answer", "sampled", "policy_version"),
)


class _Call(NamedTuple):
    """An answered call: the step's number and node, and the context before its answer as text."""

    number: int
    node: Node
    text: str


class Tree:
    """The steps of a rollout as it is played. With `codec=None` (no tokenizer) they have no tokens.

    `messages` is the running conversation, `pending` what is read now, and `answered` what is
    answered and no step yet. The conversation goes on after the step `_after` (-1: it begins), with
    whose answer its first `_known` messages end; `_text` is the context before that answer as text.
    Of each answered node, `_rows` has the row, `_stops` where it ends there, and `_at` its place on
    the tape (start, acts, stop).
    """

    def __init__(self, codec: Codec | None, tools: Sequence[ToolSchema] = ()) -> None:
        self._without_tools = self.codec = codec
        self.pending: Node | None = None
        self.answered: Node | None = None
        self.rewritten = False
        self._rows: list[array[int]] = []
        self._stops, self._parents, self._at = array("i"), array("i"), array("i")
        self._logprobs = array("f")
        self._supports: list[Supports] = []
        self._tools = tuple(tools)
        self.restart()

    @property
    def context(self) -> Sequence[int]:
        """The ids that the next action is conditioned on."""
        if self.pending is not None:
            return self.pending.row
        return self._rows[self._after] if self._after >= 0 else ()

    def __len__(self) -> int:
        """The number of nodes on the tape."""
        return len(self._rows)

    def restart(self, begins: str = "episode") -> None:
        """Go on in a new conversation, for the reason `begins`."""
        self.messages: list[Message] = []
        self._after, self._known, self._begins, self._text = _NOWHERE, 0, begins, ""
        self._before = self._position()
        self._call: tuple[_Key, _Key, _Key] | None = None  # of itself, its opening, its tools
        self._prompts: dict[_Key, _Call] = {}
        self._answers: dict[_Key, _Call] = {}
        self._openings: dict[_Key, set[_Key]] = {}

    def _position(self) -> tuple[list[Message], int, int, str]:
        return self.messages, len(self.messages), self._after, self._text

    # -- reading -----------------------------------------------------------------------------------

    def observe(self, new: Sequence[Message]) -> None:
        """Read new messages in the running conversation."""
        self._before = self._position()
        self.messages.extend(new)
        self.pending = self._read(self._known, self._begins)

    def call(self, call: ModelCall) -> ModelCall:
        """Read the conversation of a program's call, after the answer that it continues. Returns
        the call as the chat template takes it (`folded`).

        Raises ValueError if the template cannot show its messages or tools; then it is as if there
        had been no call.
        """
        before, codec, tools = self._position(), self.codec, self._tools
        try:
            if self._without_tools is None:
                self._go_to(call)
            else:
                self.codec = self._without_tools.with_tools(call.tools)
                with folded(self.codec, call.messages) as messages:
                    call = replace(call, messages=tuple(messages))
                    self._go_to(call)
        except ValueError:
            self.messages, _, self._after, self._text = before
            self.codec, self._tools = codec, tools
            raise
        self._before = before
        return call

    def _go_to(self, call: ModelCall) -> None:
        keys = call_keys(call)
        self.messages, self._tools = list(call.messages), call.tools
        known = next(
            (at for at in reversed(range(1, len(keys) - 1)) if keys[at] in self._answers), 0
        )
        if again := self._prompts.get(keys[-1]):
            self._after, self._text = self._parents[again.number], again.text
            node = again.node
            self.pending = replace(node, begins="retry", row=node.row[: node.acts], answer=None)
        elif known:
            earlier = self._answers[keys[known]]
            self._after, self._text = earlier.number, earlier.text
            self.pending = self._read(known, "")
        else:
            self._after, self._text = _NOWHERE, ""
            self.pending = self._read(0, self._reason(call, keys[0]))
        self._call = keys[-1], _opening(call.messages), keys[0]

    def _reason(self, call: ModelCall, tools: _Key) -> str:
        """Why a row begins for a call that continues none."""
        if not self._openings:
            return "episode"
        before = self._openings.get(_opening(call.messages))
        if not before:
            return "conversation"
        return "history" if tools in before else "tools"

    def _read(self, known: int, begins: str) -> Node:
        """The node of the conversation's messages, of which the first `known` are read already."""
        after, new = self._after, tuple(self.messages[known:])
        if self.codec is None:
            begins = begins if after < 0 else "branch" if after in self._parents else ""
            return Node(_parent(after), begins, new, _NO_TOKENS, 0, 0, after < 0, "", self._tools)
        if after < 0:
            return self._open(new, begins)
        row, stop = self._rows[after], self._stops[after]
        bridge = self.codec.bridge(self._text, self.messages, self._answer_ids(after), len(new))
        if bridge.delta is None:
            self.rewritten = True
            return self._open(new, "template", bridge.rewrites)
        branches = len(row) > stop
        row = row[:stop] if branches else row
        row.extend(bridge.delta)
        self._text = bridge.text
        begins = "branch" if branches else ""
        return Node(after, begins, new, row, stop, len(row), False, "", self._tools)

    def _open(self, new: tuple[Message, ...], begins: str, rewrites: str = "") -> Node:
        """The node of a row that begins."""
        assert self.codec is not None
        opening = self.codec.open(self.messages)
        row = array("i", opening.token_ids)
        self._text = opening.text
        parent = _parent(self._after)
        return Node(parent, begins, new, row, 0, len(row), True, rewrites, self._tools)

    def _answer_ids(self, number: int) -> tuple[int, ...]:
        _, acts, stop = self._at[3 * number : 3 * number + 3]
        end = self._stops[number]
        return tuple(self._rows[number][end - (stop - acts) : end])

    def withdraw(self) -> None:
        """Forget what was read last, because it gets no answer."""
        node, self.pending = self.pending, None
        if node is not None:
            del node.row[node.start :]
        self.messages, known, self._after, self._text = self._before
        del self.messages[known:]

    # -- answers -----------------------------------------------------------------------------------

    def ids_of(self, answer: Answer) -> tuple[int, ...]:
        """The token ids of an answer: those that were sampled, or a text agent's encoded words."""
        if answer.token_ids is not None:
            return answer.token_ids
        return () if self.codec is None else self.codec.encode_answer(answer.message)

    def act(self, answer: Answer) -> int:
        """Answer what is read. Returns the number of tokens."""
        node = self.answered = self.pending
        assert node is not None
        ids = () if self.codec is None else self.ids_of(answer)
        message = node.answer = answer.message
        node.sampled = answer.token_ids is not None
        node.policy_version = answer.policy_version
        self.pending, self._after = None, self.add(node, ids, answer.logprobs, answer.supports)
        self.messages.append(message)
        self._known = len(self.messages)
        if self._call is not None:
            key, opening, tools = self._call
            known = _Call(self._after, node, self._text)
            self._prompts[key] = self._answers[message_key(key, message)] = known
            self._openings.setdefault(opening, set()).add(tools)
        return len(ids)

    def add(
        self,
        node: Node,
        ids: Sequence[int],
        logprobs: Sequence[float] | None = None,
        supports: Supports = NO_SUPPORTS,
    ) -> int:
        """Put a node on the tape, with the ids of its answer; return its number."""
        start = self._at[-1] if self._at else 0
        acts = start + node.acts - node.start
        if ids:
            node.row.extend(ids)
        self._at.extend((start, acts, acts + len(ids)))
        self._logprobs.frombytes(bytes(4 * (acts - start)))
        self._logprobs.extend(logprobs if logprobs and ids else (0.0,) * len(ids))
        if len(supports):
            self._supports.append(supports.between(0, len(ids), acts))
        self._rows.append(node.row)
        self._stops.append(node.acts + len(ids))
        self._parents.append(_NOWHERE if node.parent is None else node.parent)
        return len(self._rows) - 1

    def taken(self) -> Node:
        """The answered node, which becomes a step."""
        node, self.answered = self.answered, None
        assert node is not None
        return node

    def unanswered(self) -> Node | None:
        """What was read, and perhaps answered, and is no step, because an error ended the rollout.
        Its tokens stay on the tape."""
        node, self.answered = self.answered, None
        if node is None and self.pending is not None:
            node, self.pending = self.pending, None
            self.add(node, ())
        return node

    # -- the tape ----------------------------------------------------------------------------------

    def tape(self) -> dict[str, Any]:
        """What a `Rollout` has of all steps: their `token_ids` in the order of play, (N,), with
        `logprobs`, (N,), and `supports`; and the places of the steps, `at`, (steps, 3)."""
        at = np.array(self._at, np.int32).reshape(-1, 3)
        ids = array("i")
        for row, stop, size in zip(
            self._rows, self._stops, (at[:, 2] - at[:, 0]).tolist(), strict=True
        ):
            ids.extend(row[stop - size : stop])
        return {
            "token_ids": np.array(ids, np.int32),
            "logprobs": np.array(self._logprobs, np.float32),
            "at": at,
            "supports": joined_supports(self._supports),
        }


_NO_TOKENS = array("i")  # it is never extended


def _parent(after: int) -> int | None:
    return after if after >= 0 else None


def call_keys(call: ModelCall) -> list[_Key]:
    """A key for the tools, and one for each beginning of the conversation with these tools."""
    keys = [_key(b"", list(call.tools))]
    for message in call.messages:
        keys.append(message_key(keys[-1], message))
    return keys


def _opening(messages: Sequence[Message]) -> _Key:
    """A key for the messages up to the first of the user."""
    key = b""
    for message in messages:
        key = _key(key, message.to_dict())
        if message.role == "user":
            break
    return key


def message_key(before: _Key, message: Message) -> _Key:
    """A key for a conversation and its next message. Programs strip answers, so white space around
    one does not count."""
    if message.role == "assistant":
        message = replace(message, content=message.content.strip())
    return _key(before, message.to_dict())


def _key(before: _Key, value: Any) -> _Key:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(before + text.encode(), digest_size=16).digest()
