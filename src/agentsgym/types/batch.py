"""RolloutBatch: the specification's keys over a list of rollouts.

The mapping's values are plain nested lists of ints, floats, strings and message dicts, one entry
per rollout, task by task. If a rollout has several rows, the token keys hold the last row that has
an action, and `rows` holds all rows. The values are views, computed from the rollouts on first use.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agentsgym.types.records import Rollout
from agentsgym.types.reward_placement import per_token_rewards
from agentsgym.types.rows import Row

logger = logging.getLogger(__name__)

_PADDED = {
    "padded_full_token_ids": "full_token_ids",
    "padded_full_attention_mask": "full_attention_mask",
    "padded_agent_token_mask": "agent_token_mask",
    "padded_per_token_rewards": "per_token_rewards",
}
_OF_ALL_ROWS = ("final_rewards", "final_completion_messages", "session_ids")
_OF_STEPS = ("ids", "messages", "mask", "rewards")

_WARNED: set[str] = set()
"""The key with which this process was warned that keys hold only the last rows."""


class RolloutBatch(Mapping[str, Any]):
    """A read-only mapping over rollouts.

    Keys (one entry per rollout): `full_token_ids`, `full_attention_mask`, `agent_token_mask`,
    `per_token_rewards`, `final_rewards`, `final_completion_messages`, `session_ids`; the four
    `padded_*` keys (padded on the right to the longest row of the same task); TRL's shape
    `prompt_ids`, `completion_ids`, `action_mask`, `logprobs`, `step_rewards`; and, with
    `all_steps=True`, the nested `ids[p][k]`, `messages[p][k]`, `mask[p][k]`, `rewards[p][k]`,
    with one entry per step that the environment answered, also in a failed rollout (`session_ids`
    stays flat). Their `rewards` follow `final_reward="repeat"`; `step_rewards` are always the
    rewards that the row's steps received.

    If a rollout has several rows, the keys of tokens, `logprobs` and `step_rewards` hold its last
    one; the first access to one of them then logs a warning, once in a process. `rows` has all
    rows, and `rows_per_rollout` their numbers.
    """

    def __init__(
        self, rollouts: Iterable[Rollout], *, pad_token_id: int = 0, all_steps: bool = False
    ) -> None:
        self.rollouts: tuple[Rollout, ...] = tuple(rollouts)
        self.pad_token_id = pad_token_id
        self._views: dict[str, Callable[[], list[Any]]] = {
            "full_token_ids": self._of_rows(lambda row: row.token_ids),
            "full_attention_mask": self._of_rows(lambda row: np.ones_like(row.token_ids)),
            "agent_token_mask": self._of_rows(lambda row: row.agent_token_mask),
            "per_token_rewards": self._of_rollouts(_rewards_of_last_row),
            "final_rewards": self._of_rollouts(lambda rollout: rollout.final_reward),
            "final_completion_messages": self._of_rollouts(_last_messages),
            "session_ids": self._of_rollouts(lambda rollout: rollout.session_id),
            **{key: self._padder(source) for key, source in _PADDED.items()},
            "prompt_ids": self._of_rows(lambda row: row.token_ids[: row.prompt_length]),
            "completion_ids": self._of_rows(lambda row: row.token_ids[row.prompt_length :]),
            "action_mask": self._of_rows(lambda row: row.agent_token_mask[row.prompt_length :]),
            "logprobs": self._of_rows(lambda row: row.logprobs[row.prompt_length :]),
            "step_rewards": self._of_rollouts(_row_step_rewards),
        }
        if all_steps:
            self._views |= {
                "ids": self._of_rollouts(_step_ids),
                "messages": self._of_rollouts(_step_messages),
                "mask": self._of_rollouts(_step_masks),
                "rewards": self._of_rollouts(_step_rewards),
            }
        self._cache: dict[str, list[Any]] = {}

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows of all rollouts; the rows of a rollout are adjacent, oldest first."""
        return tuple(row for rollout in self.rollouts for row in rollout.rows)

    @property
    def rows_per_rollout(self) -> tuple[int, ...]:
        """The number of rows of each rollout; where it is above 1, the token keys hold the last."""
        return tuple(len(rollout.rows) for rollout in self.rollouts)

    def __getitem__(self, key: str) -> list[Any]:
        if key not in self._cache:
            self._cache[key] = self._views[key]()
            if not _WARNED and key not in (*_OF_ALL_ROWS, *_OF_STEPS):
                self._warn_of_other_rows(key)
        return self._cache[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __repr__(self) -> str:
        failed = sum(rollout.failed for rollout in self.rollouts)
        return (
            f"RolloutBatch({len(self.rollouts)} rollouts, {len(self.rows)} rows, {failed} failed)"
        )

    def _warn_of_other_rows(self, key: str) -> None:
        """Warn, once in a process, if agent tokens are in no row that the keys hold."""
        held = sum(row.agent_tokens for row in self._last_rows())
        every = sum(rollout.agent_tokens for rollout in self.rollouts)
        if held == every:
            return
        _WARNED.add(key)
        logger.warning(
            "%r holds the last row of each rollout, here with %d of %d agent tokens. `batch.rows` "
            "has all rows; `credit.advantages` and the trainer use them.",
            key,
            held,
            every,
        )

    def _last_rows(self) -> list[Row]:
        return [last_row(rollout.rows) or _empty_row(rollout) for rollout in self.rollouts]

    def _of_rollouts(self, value: Callable[[Rollout], Any]) -> Callable[[], list[Any]]:
        return lambda: [value(rollout) for rollout in self.rollouts]

    def _of_rows(self, array: Callable[[Row], Any]) -> Callable[[], list[Any]]:
        return lambda: [array(row).tolist() for row in self._last_rows()]

    def _padder(self, source: str) -> Callable[[], list[Any]]:
        fill = self.pad_token_id if source == "full_token_ids" else 0

        def padded() -> list[Any]:
            filler = float(fill) if source == "per_token_rewards" else fill
            sequences = self[source]
            longest: dict[int, int] = {}
            for rollout, sequence in zip(self.rollouts, sequences, strict=True):
                longest[rollout.group] = max(longest.get(rollout.group, 0), len(sequence))
            return [
                sequence + [filler] * (longest[rollout.group] - len(sequence))
                for rollout, sequence in zip(self.rollouts, sequences, strict=True)
            ]

        return padded


def last_row(rows: Sequence[Row]) -> Row | None:
    """The last row that has an action; in a rollout that failed before any action, the last row."""
    acting = [row for row in rows if row.spans] or rows
    return acting[-1] if acting else None


def _empty_row(rollout: Rollout) -> Row:
    return Row(
        rollout.session_id,
        rollout.group,
        rollout.index,
        np.zeros(0, np.int32),
        np.zeros(0, np.float32),
        (),
    )


def _last_messages(rollout: Rollout) -> list[dict[str, Any]]:
    conversations = rollout.conversations()
    return [message.to_dict() for message in conversations[-1][0]] if conversations else []


def _rewards_of_last_row(rollout: Rollout) -> list[float]:
    row = last_row(rollout.rows)
    rewards = zip(rollout.rows, per_token_rewards(rollout), strict=True)
    return next((values.tolist() for one, values in rewards if one is row), [])


def _row_step_rewards(rollout: Rollout) -> list[float]:
    row = last_row(rollout.rows)
    if row is None:
        return [step.reward for episode in rollout.episodes for step in episode.steps]
    return [rollout.episodes[span.episode].steps[span.step].reward for span in row.spans]


def _step_rewards(rollout: Rollout) -> list[float]:
    repeats = rollout.final_reward_placement == "repeat"
    return [
        episode.reward if repeats and step.kind == "action" else step.reward
        for episode in rollout.episodes
        for step in episode.steps
    ]


def _step_ids(rollout: Rollout) -> list[list[int]]:
    return [row.token_ids[start:stop].tolist() for row, start, stop in _step_spans(rollout)]


def _step_masks(rollout: Rollout) -> list[list[int]]:
    return [row.agent_token_mask[start:stop].tolist() for row, start, stop in _step_spans(rollout)]


def _step_spans(rollout: Rollout) -> list[tuple[Row, int, int]]:
    """The row and the token range of each step; an empty range without a tokenizer."""
    places = {s.key: (row, s.start, s.stop) for row in rollout.rows for s in row.spans}
    nowhere = _empty_row(rollout), 0, 0
    return [
        places.get((episode.index, step.index), nowhere)
        for episode in rollout.episodes
        for step in episode.steps
    ]


def _step_messages(rollout: Rollout) -> list[list[dict[str, Any]]]:
    """The conversation up to and including each step's action."""
    views = {
        (episode.index, step.index): [message.to_dict() for message in messages[:end]]
        for messages, turns in rollout.conversations()
        for episode, step, end in turns
    }
    return [views[place] for place in sorted(views)]


def pad_id(tokenizer: Any) -> int:
    """The tokenizer's pad token id; 0 if it has none or there is no tokenizer."""
    value: int | None = getattr(tokenizer, "pad_token_id", None)
    return 0 if value is None else value
