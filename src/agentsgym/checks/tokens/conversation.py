"""What was recorded of a conversation: its rows, their cost, and whether the masks are exact."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentsgym.checks.records import last_line
from agentsgym.checks.tokens.row_breaks import Marks, RowBreak, row_breaks
from agentsgym.envs.base import MultistepEnv
from agentsgym.tokens import Codec, TemplateCodec
from agentsgym.tokens.template import TemplateFailed
from agentsgym.types import Rollout, Row
from agentsgym.types.batch import last_row

_FAILED = f"{TemplateFailed.__module__}.{TemplateFailed.__name__}: "


@dataclass(frozen=True, slots=True)
class Conversation:
    """A rollout's record.

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


def conversation_of(
    name: str, env: MultistepEnv, rollout: Rollout, said: Sequence[int], marks: Marks
) -> Conversation:
    """The record of a rollout whose answers had the ids `said`."""
    assert env.tokenizer is not None and env.codec is not None
    rows = rollout.rows
    masked = [i for row in rows for i in _agent_ids(row)]
    return Conversation(
        name=name,
        steps=sum(len(episode.steps) for episode in rollout.episodes),
        rows=len(rows),
        breaks=row_breaks(rollout, env.tokenizer, marks),
        tokens=sum(len(row.token_ids) for row in rows),
        one_row_tokens=sum(_without_break(rollout, row, env.codec) for row in rows),
        agent_tokens=rollout.agent_tokens,
        key_agent_tokens=sum(row.agent_token_mask) if (row := last_row(rows)) else 0,
        masked=masked == list(said),
        refused=last_line(rollout.error).removeprefix(_FAILED) if rollout.error else "",
    )


def _agent_ids(row: Row) -> list[int]:
    return [i for i, agent in zip(row.token_ids, row.agent_token_mask, strict=True) if agent]


def _without_break(rollout: Rollout, row: Row, codec: Codec) -> int:
    """The tokens that a row would add if the template only appended: all, if it did not begin the
    row; else the newest observation, the template's text around it, and all that follows."""
    if row.begins != "template" or not row.spans:
        return len(row.token_ids)
    assert isinstance(codec, TemplateCodec)
    first = row.spans[0]
    seen = rollout.episodes[first.episode].steps[first.step].observation
    written = codec.written
    around = codec.control.encode(written.after), codec.control.encode(written.at_end)
    closing = codec.turn_end if codec.control.leading_tokens(written.after.lstrip()) else ()
    new = len(codec.control.encode(codec.control.mark(seen))) + sum(map(len, around)) - len(closing)
    return new + len(row.token_ids) - row.prompt_length
