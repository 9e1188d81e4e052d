"""RolloutBatch: the specification's keys over a list of rollouts.

The mapping's values are plain nested lists of ints, floats, strings and message dicts, one entry
per rollout, task by task. Where a rollout has several rows, the token keys hold its last row and
`rows` holds all. They are views: computed on first use from the rollouts, which stay the truth.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from agentsgym.types.actions import Message
from agentsgym.types.records import Episode, Rollout, Row

_PADDED = {
    "padded_full_token_ids": "full_token_ids",
    "padded_full_attention_mask": "full_attention_mask",
    "padded_agent_token_mask": "agent_token_mask",
    "padded_per_token_rewards": "per_token_rewards",
}


class RolloutBatch(Mapping[str, Any]):
    """A read-only mapping over rollouts.

    Keys (one entry per rollout): `full_token_ids`, `full_attention_mask`, `agent_token_mask`,
    `per_token_rewards`, `final_rewards`, `final_completion_messages`, `session_ids`; the four
    `padded_*` keys (padded on the right to the longest row of the same task); TRL's shape
    `prompt_ids`, `completion_ids`, `action_mask`, `logprobs`, `step_rewards`; and, with
    `all_steps=True`, the nested `ids[p][k]`, `messages[p][k]`, `mask[p][k]`, `rewards[p][k]`.
    """

    def __init__(
        self, rollouts: Iterable[Rollout], *, pad_token_id: int = 0, all_steps: bool = False
    ) -> None:
        self.rollouts: tuple[Rollout, ...] = tuple(rollouts)
        self.pad_token_id = pad_token_id
        self._views: dict[str, Callable[[], list[Any]]] = {
            "full_token_ids": lambda: [list(row.token_ids) for row in self._last_rows()],
            "full_attention_mask": lambda: [[1] * len(row.token_ids) for row in self._last_rows()],
            "agent_token_mask": lambda: [list(row.agent_token_mask) for row in self._last_rows()],
            "per_token_rewards": lambda: [list(row.per_token_rewards) for row in self._last_rows()],
            "final_rewards": lambda: [rollout.final_reward for rollout in self.rollouts],
            "final_completion_messages": lambda: [_last_messages(r) for r in self.rollouts],
            "session_ids": lambda: [rollout.session_id for rollout in self.rollouts],
            **{key: self._padder(source) for key, source in _PADDED.items()},
            "prompt_ids": lambda: [
                list(row.token_ids[: row.prompt_length]) for row in self._last_rows()
            ],
            "completion_ids": lambda: [
                list(row.token_ids[row.prompt_length :]) for row in self._last_rows()
            ],
            "action_mask": lambda: [
                list(row.agent_token_mask[row.prompt_length :]) for row in self._last_rows()
            ],
            "logprobs": lambda: [
                list(row.logprobs[row.prompt_length :]) for row in self._last_rows()
            ],
            "step_rewards": lambda: [_row_step_rewards(rollout) for rollout in self.rollouts],
        }
        if all_steps:
            self._views |= {
                "ids": lambda: [_step_ids(rollout) for rollout in self.rollouts],
                "messages": lambda: [_step_messages(rollout) for rollout in self.rollouts],
                "mask": lambda: [_step_masks(rollout) for rollout in self.rollouts],
                "rewards": lambda: [_step_rewards(rollout) for rollout in self.rollouts],
            }
        self._cache: dict[str, list[Any]] = {}

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows of all rollouts, a rollout's rows adjacent and in the order they began."""
        return tuple(row for rollout in self.rollouts for row in rollout.rows)

    def __getitem__(self, key: str) -> list[Any]:
        if key not in self._cache:
            self._cache[key] = self._views[key]()
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

    def _last_rows(self) -> list[Row]:
        return [
            rollout.rows[-1] if rollout.rows else _empty_row(rollout) for rollout in self.rollouts
        ]

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


def _empty_row(rollout: Rollout) -> Row:
    return Row(rollout.session_id, rollout.group, rollout.index, (), (), (), (), ())


def _last_messages(rollout: Rollout) -> list[Message]:
    if not rollout.episodes:
        return []
    return [_copy(message) for message in rollout.episodes[-1].messages]


def _copy(message: Message) -> Message:
    return {"role": message["role"], "content": message["content"]}


def _reward_at(rollout: Rollout, episode: int, step: int) -> float:
    return rollout.episodes[episode].steps[step].reward


def _row_step_rewards(rollout: Rollout) -> list[float]:
    if not rollout.rows:
        return _step_rewards(rollout)
    return [_reward_at(rollout, span.episode, span.step) for span in rollout.rows[-1].spans]


def _step_rewards(rollout: Rollout) -> list[float]:
    return [step.reward for episode in rollout.episodes for step in episode.steps]


def _step_ids(rollout: Rollout) -> list[list[int]]:
    return [
        list(row.token_ids[span.start : span.stop]) for row in rollout.rows for span in row.spans
    ]


def _step_masks(rollout: Rollout) -> list[list[int]]:
    return [
        list(row.agent_token_mask[span.start : span.stop])
        for row in rollout.rows
        for span in row.spans
    ]


def _step_messages(rollout: Rollout) -> list[list[Message]]:
    return [prefix for episode in rollout.episodes for prefix in _action_prefixes(episode)]


def _action_prefixes(episode: Episode) -> list[list[Message]]:
    """The conversation up to and including each of the episode's own actions."""
    own = len(episode.steps)
    ends = [i + 1 for i, message in enumerate(episode.messages) if message["role"] == "assistant"]
    return [[_copy(m) for m in episode.messages[:end]] for end in (ends[-own:] if own else [])]


def pad_id(tokenizer: Any) -> int:
    """The tokenizer's pad token id, 0 where it has none (or there is no tokenizer)."""
    value: int | None = getattr(tokenizer, "pad_token_id", None)
    return 0 if value is None else value
