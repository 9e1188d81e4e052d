"""The step table: all inputs of credit assignment, as arrays."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentsgym.types import Rollout, Row, Step, StepSpan
from agentsgym.types.rows import Flags, Floats, Ints

Choices = tuple[Mapping[int, float], ...]
"""For each token of an action some tokens that could stand there instead, the token itself often
among them, and their probabilities after the same context and the action's earlier tokens."""


StepChoices = Mapping[tuple[int, int], Choices]
"""(episode, step) → the choices of its action."""

StepValues = Mapping[tuple[int, int], float]
"""(episode, step) → the critic's value before its action."""


@dataclass(frozen=True, slots=True)
class StepTable:
    """R rollouts and their N steps.

    Per rollout, shape (R,): `group` int64 (rollouts with equal numbers are compared), `live` bool
    (False if the rollout failed), `final_reward` float64 (the mean reward of the scored episodes
    minus the rollout's `penalty`; NaN if it failed), `env` object (its `env_class_path`), `index`
    int64 (its number in the group), `trunk` int64 (of a branch the place in these arrays of the
    rollout that it left; of any other its own). Per step, shape (N,): `rollout` int64 (index into
    the arrays of shape (R,)), `replayed` bool (a branch repeats it, so its tokens are context
    there), `episode` and `step` int64, `reward` float64, `score_weight` float64 (the share of
    the episode's reward in the final reward: 1 / scored episodes, 0 in free shots), `tokens` int64
    (agent tokens), `reflection` bool, `anchor` object (str: the environment's key for the state
    before the step; without one, the normalized observation), `penalty` float64 (what a malformed
    action in a free shot takes off the final reward), `action` object (its token ids as a tuple)
    and, for an estimator that `reads_choices`, `choices` object (`Choices`, empty where they were
    not computed), or that `reads_values`, `value` float64 (what a critic expects of the rest of the
    rollout before the action; 0 where it was not computed).
    """

    group: Ints
    live: Flags
    final_reward: Floats
    env: NDArray[np.object_]
    rollout: Ints
    episode: Ints
    step: Ints
    reward: Floats
    score_weight: Floats
    tokens: Ints
    reflection: Flags
    anchor: NDArray[np.object_]
    index: Ints
    penalty: Floats
    action: NDArray[np.object_]
    choices: NDArray[np.object_]
    value: Floats
    trunk: Ints
    replayed: Flags

    def __post_init__(self) -> None:
        self._check_keys()
        bad = np.flatnonzero(~np.isfinite(self.reward) & self.live[self.rollout])
        if len(bad):
            k = int(bad[0])
            raise ValueError(
                f"reward of step {self.step[k]}, episode {self.episode[k]}, rollout "
                f"{self.rollout[k]} is {self.reward[k]}; rewards must be finite"
            )

    @property
    def size(self) -> Floats:
        """The largest absolute reward, of a step or a rollout, in each rollout's group, (R,)."""
        largest = np.fmax(np.abs(self.final_reward), 0.0)
        np.fmax.at(largest, self.rollout, np.abs(self.reward))
        groups = np.unique(self.group, return_inverse=True)[1]
        of_group = np.zeros(len(largest))
        np.fmax.at(of_group, groups, largest)
        return of_group[groups]

    @property
    def counted(self) -> Floats:
        """The part of each step's reward in the final reward, shape (N,); over a rollout's steps
        they sum to it."""
        return self.score_weight * self.reward - self.penalty

    def _check_keys(self) -> None:
        keys, numbers = np.unique(np.stack([self.group, self.index]), axis=1, return_counts=True)
        if (numbers > 1).any():
            group, index = keys[:, numbers > 1][:, 0]
            raise ValueError(
                f"rollout {index} of group {group} stands {numbers.max()} times in the batch; "
                "rollouts of several generations are credited one generation at a time"
            )


def table_of(
    rollouts: Sequence[Rollout],
    choices: Sequence[StepChoices] = (),
    values: Sequence[StepValues] = (),
) -> StepTable:
    """The step table of some rollouts, with steps in the order of play. `choices` and `values` are
    those of each rollout's steps, as far as they are known.

    Raises ValueError if a live rollout's reward is NaN or infinite, or if a rollout occurs twice.
    """
    spans = [spans_of(rollout) for rollout in rollouts]
    alternatives, values = choices or [{}] * len(rollouts), values or [{}] * len(rollouts)
    steps = [
        (r, episode, step, _tokens(spans[r].get((episode.index, step.index))))
        for r, rollout in enumerate(rollouts)
        for episode in rollout.episodes
        for step in episode.steps
    ]
    places = {rollout.session_id: r for r, rollout in enumerate(rollouts)}
    left = [rollout.session_id.rpartition("@")[0] for rollout in rollouts]
    shares = [_share_of_an_episode(rollout) for rollout in rollouts]
    penalties = [
        0.0 if episode.score_weight else step.penalty * shares[r] for r, episode, step, _ in steps
    ]
    return StepTable(
        group=np.array([r.group for r in rollouts], dtype=np.int64),
        index=np.array([r.index for r in rollouts], dtype=np.int64),
        live=np.array([not r.failed for r in rollouts], dtype=np.bool_),
        final_reward=np.array([_final_reward(r) for r in rollouts], dtype=np.float64),
        env=np.array([r.env_class_path for r in rollouts], dtype=np.object_),
        rollout=np.array([r for r, _, _, _ in steps], dtype=np.int64),
        episode=np.array([e.index for _, e, _, _ in steps], dtype=np.int64),
        step=np.array([s.index for _, _, s, _ in steps], dtype=np.int64),
        reward=np.array([s.reward for _, _, s, _ in steps], dtype=np.float64),
        score_weight=np.array([e.score_weight * shares[r] for r, e, _, _ in steps], np.float64),
        penalty=np.array(penalties, dtype=np.float64),
        tokens=np.array([len(tokens) for _, _, _, tokens in steps], dtype=np.int64),
        reflection=np.array([s.kind == "reflection" for _, _, s, _ in steps], dtype=np.bool_),
        anchor=np.array([_anchor(s) for _, _, s, _ in steps], dtype=np.object_),
        action=objects([tokens for _, _, _, tokens in steps]),
        choices=objects([alternatives[r].get((e.index, s.index), ()) for r, e, s, _ in steps]),
        value=np.array([values[r].get((e.index, s.index), 0.0) for r, e, s, _ in steps]),
        trunk=np.array([places.get(left[r], r) for r in range(len(rollouts))], dtype=np.int64),
        replayed=np.array([flag for one in rollouts for flag in _replayed(one)], dtype=np.bool_),
    )


_ROUNDING = 1e-12
"""Share of the size of rewards up to which their difference is a rounding error."""


def without_rounding(differences: Floats, size: Floats | float) -> Floats:
    """Differences of rewards, in which those that are rounding errors are 0: the only rule of what
    is equal, to be applied before anything is divided. `size` is that of the rewards."""
    return np.where(np.abs(differences) <= _ROUNDING * size, 0.0, differences)


def differ(rewards: Iterable[float]) -> bool:
    """Whether rewards differ by more than rounding errors."""
    values = np.array([*rewards])
    return bool(len(values)) and bool(
        without_rounding(values - values.mean(), np.abs(values).max()).any()
    )


def objects(values: Sequence[object]) -> NDArray[np.object_]:
    """An array of objects, shape (N,), also where they are sequences of the same length."""
    return np.fromiter(values, np.object_, len(values))


def spans_of(rollout: Rollout) -> dict[tuple[int, int], tuple[Row, StepSpan]]:
    """(episode, step) → the row in which the step's tokens carry loss, and their span."""
    return {span.key: (row, span) for row in rollout.rows for span in row.spans}


def concatenate(tables: Sequence[StepTable]) -> StepTable:
    """One table of several (for instance of all ranks); group numbers must be global already."""
    offsets = np.cumsum([0, *(len(table.group) for table in tables[:-1])])
    places = {
        name: np.concatenate([getattr(t, name) + o for t, o in zip(tables, offsets, strict=True)])
        for name in ("rollout", "trunk")
    }
    return StepTable(
        **places,
        **{
            name: np.concatenate([getattr(table, name) for table in tables])
            for name in StepTable.__slots__
            if name not in places
        },
    )


def _replayed(rollout: Rollout) -> Iterator[bool]:
    """Whether a branch repeats each step, in the order of play."""
    number = 0
    for episode in rollout.episodes:
        yield from (number + k < rollout.replayed for k in range(len(episode.steps)))
        number += len(episode.nodes)


def _final_reward(rollout: Rollout) -> float:
    if rollout.failed:
        return math.nan
    if not math.isfinite(rollout.final_reward):
        raise ValueError(
            f"final reward of session {rollout.session_id} is {rollout.final_reward}; "
            "rewards must be finite"
        )
    return rollout.final_reward - _penalty(rollout)


def _share_of_an_episode(rollout: Rollout) -> float:
    """The share of a scored episode's reward in the final reward."""
    return 1.0 / max(1, sum(episode.score_weight > 0 for episode in rollout.episodes))


def _penalty(rollout: Rollout) -> float:
    """What malformed actions in free shots take off the final reward: each as much as in a scored
    episode."""
    free = [episode for episode in rollout.episodes if not episode.score_weight]
    return _share_of_an_episode(rollout) * sum(s.penalty for e in free for s in e.steps)


def _tokens(place: tuple[Row, StepSpan] | None) -> tuple[int, ...]:
    """The token ids of an action."""
    if place is None:
        return ()
    row, span = place
    return tuple(row.token_ids[span.start : span.stop].tolist())


def _anchor(step: Step) -> str:
    """Equal for steps in the same state; observations are compared without case and white space."""
    return step.anchor if step.anchor is not None else " ".join(step.observation.lower().split())
