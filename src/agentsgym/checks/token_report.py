"""What is recorded of conversations with a tokenizer: rows, their cost, why the template began
them; and the report on it, printable and as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.failures import last_line
from agentsgym.tokens import CallCheck, Codec, TemplateCodec, TokenCheck
from agentsgym.tokens.template import REWRITES, TemplateFailed
from agentsgym.types import Rollout, Row, Tokenizer
from agentsgym.types.batch import last_row

_FAILED = f"{TemplateFailed.__module__}.{TemplateFailed.__name__}: "
_BEFORE, _AFTER = 12, 48  # characters that are shown around a difference


@dataclass(frozen=True, slots=True)
class RowBreak:
    """A row that begins because the template rewrote history, at a step of an episode (from 0).

    `reason` is what it changed, as in `Row.rewrites`. `was` and `now` are the context before and
    after, from shortly before their first difference.
    """

    episode: int
    step: int
    reason: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class RecordedTalk:
    """What was recorded of a conversation.

    `tokens` is the number of tokens in all `rows`, and `one_row_tokens` what it would be without
    the `breaks`. `agent_tokens` are those of the agent, `key_agent_tokens` those of them in the
    row that the keys of a `RolloutBatch` hold. `masked` says whether the agent-token masks mark
    the sampled tokens and no others. `refused` has the error if the template refuses it.
    """

    name: str
    steps: int
    rows: int
    breaks: tuple[RowBreak, ...]
    tokens: int
    one_row_tokens: int
    agent_tokens: int
    key_agent_tokens: int
    masked: bool
    refused: str = ""

    @property
    def cost(self) -> float:
        """How many times as many tokens as without the breaks."""
        return self.tokens / max(1, self.one_row_tokens)


def recorded(
    name: str, env: MultistepEnv, rollout: Rollout, sampled: Sequence[int]
) -> RecordedTalk:
    """The record of a rollout whose answers had the ids `sampled`."""
    assert env.tokenizer is not None and env.codec is not None
    rows = rollout.rows
    masked = [i for row in rows for i in row.token_ids[row.agent_token_mask == 1].tolist()]
    return RecordedTalk(
        name=name,
        steps=sum(len(episode.steps) for episode in rollout.episodes),
        rows=len(rows),
        breaks=_row_breaks(rows, env.tokenizer),
        tokens=sum(len(row.token_ids) for row in rows),
        one_row_tokens=sum(_without_break(rollout, row, env.codec) for row in rows),
        agent_tokens=rollout.agent_tokens,
        key_agent_tokens=row.agent_tokens if (row := last_row(rows)) else 0,
        masked=masked == list(sampled),
        refused=last_line(rollout.error).removeprefix(_FAILED) if rollout.error else "",
    )


def _without_break(rollout: Rollout, row: Row, codec: Codec) -> int:
    """The tokens that a row would add if the template only appended: all, if it did not begin the
    row; else the newest observation, the template's text around it, and all that follows."""
    if row.begins != "template" or not row.spans:
        return len(row.token_ids)
    assert isinstance(codec, TemplateCodec)
    first = row.spans[0]
    seen = rollout.episodes[first.episode].steps[first.step].observation
    written = codec.template.written
    around = codec.control.encode(written.after), codec.control.encode(written.at_end)
    closing = codec.turn_end if codec.control.leading(written.after.lstrip()) else ()
    new = len(codec.control.encode(codec.control.mark(seen))) + sum(map(len, around)) - len(closing)
    return new + len(row.token_ids) - row.prompt_length


def _row_breaks(rows: Sequence[Row], tokenizer: Tokenizer) -> tuple[RowBreak, ...]:
    """Every row that begins because of the template."""
    return tuple(
        _break(before, row, tokenizer)
        for before, row in pairwise(rows)
        if row.begins == "template" and row.spans
    )


def _break(before: Row, row: Row, tokenizer: Tokenizer) -> RowBreak:
    was = tokenizer.decode(before.token_ids.tolist())
    now = tokenizer.decode(row.token_ids[: row.prompt_length].tolist())
    pairs = enumerate(zip(was, now, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(was), len(now)))
    shown = slice(max(0, at - _BEFORE), at + _AFTER)
    return RowBreak(*row.spans[0].key, row.rewrites, was[shown], now[shown])


# -- the report ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenReport:
    """What is recorded of conversations with a tokenizer.

    `check` has the properties of tokenizer and chat template, `calls` what became of calls of
    tools, `conversations` what became of the conversations: the plain one first, then those of an
    environment, with a system prompt, and with tools.
    """

    check: TokenCheck
    calls: CallCheck
    conversations: tuple[RecordedTalk, ...]

    @property
    def append_only(self) -> bool:
        """Whether the template begins no row in any conversation that it renders."""
        return not any(one.breaks for one in self.conversations)

    @property
    def masked(self) -> bool:
        """Whether all agent-token masks are exact."""
        return all(one.masked for one in self.conversations if not one.refused)

    @property
    def problems(self) -> tuple[str, ...]:
        """What makes the tokenizer unfit for training; new rows only cost time."""
        first, forgeable = self.conversations[0], ", ".join(self.check.forgeable)
        sentences = {
            f"the chat template refuses a conversation: {first.refused}": bool(first.refused),
            "an agent-token mask is not exact": not self.masked,
            f"a text can forge {forgeable}": bool(forgeable),
            "nothing ends an answer: the tokenizer has no end of text, and the template writes no "
            "control token after an answer": not self.check.stops,
        }
        return tuple(sentence for sentence, holds in sentences.items() if holds)

    def to_json(self) -> str:
        """One JSON object on one line."""
        data = {"append_only": self.append_only, "problems": list(self.problems), **asdict(self)}
        for one, made in zip(self.conversations, data["conversations"], strict=True):
            made["cost"] = round(one.cost, 3)
        return json.dumps(data)

    def lines(self) -> list[tuple[str, str]]:
        """A topic and a sentence for each finding."""
        check = self.check
        template = "append-only" if self.append_only else "rewrites history"
        if not check.has_template:
            template = "none: prompts and answers are encoded one by one and joined"
        apart = "kept apart: written by a task or an agent as text, they are ordinary text"
        findings = {
            "chat template": template,
            "tool calls": self._tool_calls(),
            "system prompt": check.default_system_prompt
            and f"the template adds its own if there is none: {check.default_system_prompt!r}",
            "date": check.dated
            and "the template writes today's date: equal prompts differ from day to day",
            "end of a turn": f"an answer ends at {' or '.join(check.stops) or 'nothing'}, or where "
            "the model's generation config says",
            "masks": "exact: the sampled tokens, each once, and no others"
            if self.masked
            else "NOT exact: they do not mark the sampled tokens",
            "control tokens": f"a text can forge {', '.join(check.forgeable)}"
            if check.forgeable
            else apart,
            "verdict": self._verdict(),
        }
        first, *rest = [(topic, str(text)) for topic, text in findings.items() if text]
        return [first, *(line for one in self.conversations for line in _recorded(one)), *rest]

    def _tool_calls(self) -> str:
        calls = self.calls
        if calls.fault:
            return f"none: {calls.fault}"
        if not calls.single:
            return "a call is NOT read as the template writes it"
        count = "one, or two in one answer, is" if calls.several else "one in an answer is"
        rows = (
            f"the template {REWRITES[calls.rewrites]}, so that a result begins a new row"
            if calls.rewrites
            else "call, result and next call stay one row"
        )
        return f"as in {calls.families}; {count} read as it was written; {rows}"

    def _verdict(self) -> str:
        if self.problems:
            return f"not fit for training: {'; '.join(self.problems)}"
        worst = max(self.conversations, key=lambda one: one.cost)
        if worst.breaks:
            return (
                f"fit for training, at up to {worst.cost:.1f} times the tokens in {worst.steps} "
                "steps, more in longer episodes; model.chat_template=training, or a template that "
                "only appends, may avoid it"
            )
        return "fit for training: one row for each context"


def _recorded(one: RecordedTalk) -> Iterator[tuple[str, str]]:
    """What became of a conversation."""
    if one.refused:
        yield one.name, f"refused: {one.refused}"
        return
    size = f"{one.tokens} tokens, {one.agent_tokens} of them the agent's"
    if not one.breaks:
        rows = "one row" if one.rows == 1 else f"{one.rows} rows, none of them by the template"
        yield one.name, f"{rows}: {size}"
        return
    reasons = dict.fromkeys(REWRITES[one_break.reason] for one_break in one.breaks)
    steps = dict.fromkeys(one_break.step for one_break in one.breaks)
    sentences = (
        f"the template {' and '.join(reasons)}: a new row at {_steps(list(steps))}.",
        f"{one.rows} rows, {size}; {one.one_row_tokens} if it only appended",
        f"({one.cost:.1f} times). The keys of a RolloutBatch hold the last row:",
        f"{one.key_agent_tokens} of the agent's tokens",
    )
    yield one.name, " ".join(sentences)
    first = one.breaks[0]
    yield "", f"was {first.was!r}"
    yield "", f"now {first.now!r}"


def _steps(steps: list[int]) -> str:
    """For instance "step 1", "steps 1, 2, 3"; steps count from 0."""
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps))} (from 0)"
