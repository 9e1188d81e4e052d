"""What the rows of a program's calls must be, told from the calls alone.

Nothing here comes from `tokens/`: a row's text is what the tokenizer's own template renders for a
first call, and what ChatML writes between an answer and the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuzz.hostile_program import Called
from noise_engine import Sampled

START, END = "<|im_start|>", "<|im_end|>"
HIDDEN = "\ue000"  # stands for "<"


@dataclass
class ExpectedRow:
    """A row: why it begins, and its parts: ids, and the step whose answer they are."""

    begins: str
    parts: list[tuple[Sequence[int], int | None]] = field(default_factory=list)

    @property
    def steps(self) -> list[int]:
        """The steps whose answers carry loss here."""
        return [step for _, step in self.parts if step is not None]


@dataclass(frozen=True)
class _Answer:
    """An answered call: the tools and the conversation, without and with the answer, and how many
    parts its row had before the answer."""

    tools: Any
    prompt: list[Any]
    talk: list[Any]
    row: ExpectedRow
    parts: int


def expected_rows(
    tokenizer: Any, calls: Sequence[Called], sampled: Sequence[Sampled]
) -> list[ExpectedRow]:
    """The rows of calls that were answered in this order."""
    rows: list[ExpectedRow] = []
    answered: list[_Answer] = []
    openings: list[tuple[Any, Any]] = []
    for step, (call, answer) in enumerate(zip(calls, sampled, strict=True)):
        row = _row_for(tokenizer, call, rows, answered, openings)
        openings.append((_opening(call.messages), call.tools))
        said = {"role": "assistant", "content": said_by(tokenizer, answer.ids)}
        talk = [*call.messages, said]
        answered.append(_Answer(call.tools, call.messages, talk, row, len(row.parts)))
        row.parts.append((answer.ids, step))
    return rows


def _row_for(
    tokenizer: Any,
    call: Called,
    rows: list[ExpectedRow],
    answered: list[_Answer],
    openings: list[tuple[Any, Any]],
) -> ExpectedRow:
    same_tools = [one for one in reversed(answered) if one.tools == call.tools]
    again = [one for one in same_tools if _stripped(one.prompt) == _stripped(call.messages)]
    if again:
        return _copy(rows, again[0].row, again[0].parts, "retry")
    continued = [one for one in same_tools if _begins(call.messages, one.talk)]
    if continued:
        longest = max(len(one.talk) for one in continued)
        one = next(one for one in continued if len(one.talk) == longest)
        row = one.row
        if len(row.parts) > one.parts + 1:
            row = _copy(rows, row, one.parts + 1, "branch")
        ended = row.parts[one.parts][0][-1] == tokenizer.eos_token_id
        row.parts.append((_ids(tokenizer, _between(call.messages[longest:], ended)), None))
        return row
    tools = [tools for opening, tools in openings if opening == _opening(call.messages)]
    known = "history" if call.tools in tools else "tools"
    begins = (known if tools else "conversation") if openings else "episode"
    text = tokenizer.apply_chat_template(
        _hidden(call.messages),
        tools=_hidden(call.tools) or None,
        add_generation_prompt=True,
        tokenize=False,
    )
    rows.append(ExpectedRow(begins, [(_ids(tokenizer, text), None)]))
    return rows[-1]


def _begins(messages: list[Any], talk: list[Any]) -> bool:
    """Whether the messages go on after an answered conversation."""
    begun = messages[: len(talk)]
    return len(messages) > len(talk) and _stripped(begun) == _stripped(talk)


def _stripped(messages: list[Any]) -> list[Any]:
    """The messages without white space around answers, which does not count."""
    return [
        {**one, "content": one["content"].strip()} if one["role"] == "assistant" else one
        for one in messages
    ]


def _copy(rows: list[ExpectedRow], row: ExpectedRow, parts: int, begins: str) -> ExpectedRow:
    """A new row with a part of another as its context: no answer in it carries loss again."""
    rows.append(ExpectedRow(begins, [(part, None) for part, _ in row.parts[:parts]]))
    return rows[-1]


def _between(messages: list[Any], ended: bool) -> str:
    shown = _hidden(messages)
    turns = "".join(f"{START}{one['role']}\n{one['content']}{END}\n" for one in shown)
    return f"{'' if ended else END}\n{turns}{START}assistant\n"


def _opening(messages: list[Any]) -> list[Any]:
    roles = [one["role"] for one in messages]
    return messages[: roles.index("user") + 1] if "user" in roles else messages


def _hidden(value: Any) -> Any:
    """The value without the words that the tokenizer would read as the template's own."""
    if isinstance(value, str):
        return value.replace("<", HIDDEN)
    if isinstance(value, list):
        return [_hidden(one) for one in value]
    if isinstance(value, dict):
        return {_hidden(key): _hidden(one) for key, one in value.items()}
    return value


def _ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of a rendered text, of whose hidden words each letter is a letter. (Each byte is a
    token of its tokenizer.)"""
    parts = text.split(HIDDEN)
    ids = tokenizer.encode(parts[0], add_special_tokens=False)
    for part in parts[1:]:
        for piece in ("<", part):
            ids += tokenizer.encode(piece, add_special_tokens=False)
    return list(ids)


def said_by(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of an answer without its end."""
    return tokenizer.decode([token for token in ids if token != tokenizer.eos_token_id])


def check_row(row: Any, expected: ExpectedRow, sampled: Sequence[Sampled]) -> None:
    """The row is the one that is expected, token by token."""
    assert (row.begins, row.sampled) == (expected.begins, True)
    assert row.token_ids.tolist() == [token for part, _ in expected.parts for token in part]
    assert [span.step for span in row.spans] == expected.steps
    logprobs = [0.0] * len(row.token_ids)
    for span in row.spans:
        answer = sampled[span.step]
        assert tuple(row.token_ids[: span.start].tolist()) == answer.context
        assert tuple(row.token_ids[span.start : span.stop].tolist()) == answer.ids
        logprobs[span.start : span.stop] = answer.logprobs
    assert np.allclose(row.logprobs, logprobs, atol=1e-6)
