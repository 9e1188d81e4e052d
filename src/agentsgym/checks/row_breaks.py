"""What was recorded of a conversation: its rows, their cost, and why the template began them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from agentsgym.checks.players import last_line
from agentsgym.envs.base import MultistepEnv
from agentsgym.tokens import Codec, TemplateCodec
from agentsgym.tokens.template import TemplateFailed
from agentsgym.types import Rollout, Row, StepSpan, Tokenizer
from agentsgym.types.batch import last_row

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "thoughts": "drops earlier thoughts",
        "system": "moves the system prompt",
        "tools": "moves the tools",
        "opening": "writes something else before earlier answers",
        "answer": "changes the text of earlier answers",
        "ending": "ends earlier answers with other tokens",
        "earlier": "changes earlier turns",
    }
)
"""Why a row begins, in words whose subject is the chat template."""


_FAILED = f"{TemplateFailed.__module__}.{TemplateFailed.__name__}: "
_BEFORE, _AFTER = 12, 48  # characters that are shown around a difference


@dataclass(frozen=True, slots=True)
class RowBreak:
    """A row that begins because the template rewrote history, at a step of an episode (from 0).

    `reason` is a key of `REASONS`. `was` and `now` are the context before and after, from shortly
    before their first difference.
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


@dataclass(frozen=True, slots=True)
class Marks:
    """Texts by which one sees what a template does: the agent's `thoughts`, the `system` prompt and
    the name of a tool in `tools`; empty if there are none."""

    thoughts: tuple[str, ...] = ()
    system: str = ""
    tools: str = ""


def recorded(
    name: str, env: MultistepEnv, rollout: Rollout, sampled: Sequence[int], marks: Marks
) -> RecordedTalk:
    """The record of a rollout whose answers had the ids `said`."""
    assert env.tokenizer is not None and env.codec is not None
    rows = rollout.rows
    masked = [i for row in rows for i in _agent_ids(row)]
    return RecordedTalk(
        name=name,
        steps=sum(len(episode.steps) for episode in rollout.episodes),
        rows=len(rows),
        breaks=_row_breaks(rollout, env.tokenizer, marks),
        tokens=sum(len(row.token_ids) for row in rows),
        one_row_tokens=sum(_without_break(rollout, row, env.codec) for row in rows),
        agent_tokens=rollout.agent_tokens,
        key_agent_tokens=row.agent_tokens if (row := last_row(rows)) else 0,
        masked=masked == list(sampled),
        refused=last_line(rollout.error).removeprefix(_FAILED) if rollout.error else "",
    )


def _agent_ids(row: Row) -> list[int]:
    ids: list[int] = row.token_ids[row.agent_token_mask == 1].tolist()
    return ids


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
    closing = codec.turn_end if codec.control.leading_tokens(written.after.lstrip()) else ()
    new = len(codec.control.encode(codec.control.mark(seen))) + sum(map(len, around)) - len(closing)
    return new + len(row.token_ids) - row.prompt_length


def _row_breaks(rollout: Rollout, tokenizer: Tokenizer, marks: Marks) -> tuple[RowBreak, ...]:
    """Every row that begins because of the template."""
    return tuple(
        _break(before, row, _observations(rollout), tokenizer, marks)
        for before, row in pairwise(rollout.rows)
        if row.begins == "template" and row.spans
    )


def _observations(rollout: Rollout) -> list[str]:
    return [step.observation for episode in rollout.episodes for step in episode.steps]


def _break(
    before: Row, row: Row, observations: Collection[str], tokenizer: Tokenizer, marks: Marks
) -> RowBreak:
    was = tokenizer.decode(before.token_ids.tolist())
    now = tokenizer.decode(row.token_ids[: row.prompt_length].tolist())
    at = _first_difference(was, now)
    shown = slice(max(0, at - _BEFORE), at + _AFTER)
    first = row.spans[0]
    return RowBreak(
        first.episode,
        first.step,
        _moved(was, now, marks) or _changed(before, at, observations, tokenizer),
        was[shown],
        now[shown],
    )


def _first_difference(was: str, now: str) -> int:
    pairs = enumerate(zip(was, now, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(was), len(now)))


def _moved(was: str, now: str, marks: Marks) -> str | None:
    """The mark that the template dropped or moved, as a reason."""
    if any(thought in was and thought not in now for thought in marks.thoughts):
        return "thoughts"
    for reason, text in (("system", marks.system), ("tools", marks.tools)):
        if text and text in was and was.find(text) != now.find(text):
            return reason
    return None


def _changed(before: Row, at: int, observations: Collection[str], tokenizer: Tokenizer) -> str:
    """What of the row `before` contains its first changed character, the one at `at`."""
    for span, start, stop in _texts(before, tokenizer):
        if at >= stop:
            continue
        if at > start:
            return "ending" if _is_ending(before, span, at, tokenizer) else "answer"
        read = tokenizer.decode(before.token_ids[: span.start].tolist())
        ends = [read.rfind(text) + len(text) for text in observations if text and text in read]
        return "opening" if at >= max(ends, default=0) else "earlier"
    return "opening"


def _texts(row: Row, tokenizer: Tokenizer) -> Iterator[tuple[StepSpan, int, int]]:
    """Each action of a row, with the positions in its text where it starts and stops."""
    for span in row.spans:
        start, stop = (
            len(tokenizer.decode(row.token_ids[:end].tolist())) for end in (span.start, span.stop)
        )
        yield span, start, stop


def _is_ending(row: Row, span: StepSpan, at: int, tokenizer: Tokenizer) -> bool:
    """Whether the character at `at` belongs to the last token of an action, its end of turn."""
    return at >= len(tokenizer.decode(row.token_ids[: span.stop - 1].tolist()))
