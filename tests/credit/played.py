"""Rollouts drawn by hand: what was earned, in how many tokens, and where."""

from collections.abc import Sequence
from dataclasses import dataclass

import of_rows
from agentsgym.types import Episode, Rollout

OF_BATCHES = ("reinforce_pp",)
"""Estimators whose numbers depend on the other groups of the batch."""


@dataclass(frozen=True)
class Did:
    """A step: its reward, its number of agent tokens, the state it was taken in, its kind, the
    penalty in its reward, and the token that its action repeats."""

    reward: float
    tokens: int = 2
    anchor: str | None = None
    kind: str = "action"
    penalty: float = 0.0
    word: int = 2


def rollout(
    group: int,
    index: int,
    *episodes: Sequence[Did | float],
    free_shots: int = 0,
    failed: bool = False,
    env: str = "Toy",
    row_per_episode: bool = False,
    padding: int = 0,
    placement: str = "spread",
) -> Rollout:
    """One rollout. A number stands for a step of 2 tokens that earned it.

    Before each row's first step are two tokens that are not the agent's, and `padding` more; before
    each later one is one.
    """
    steps = [[d if isinstance(d, Did) else Did(d) for d in episode] for episode in episodes]
    parts = [[k] for k in range(len(steps))] if row_per_episode else [list(range(len(steps)))]
    return of_rows.rollout_of(
        [_episode(k, episode, 0.0 if k < free_shots else 1.0) for k, episode in enumerate(steps)],
        [_row(steps, part, padding) for part in parts if any(steps[k] for k in part)],
        group=group,
        index=index,
        env=env,
        error="boom" if failed else None,
        reward_placement=placement,
    )


def _episode(index: int, steps: Sequence[Did], weight: float) -> Episode:
    played = [
        of_rows.step_of(
            k,
            f"seen {k}",
            "did",
            d.reward,
            k + 1 == len(steps),
            anchor=d.anchor,
            kind=d.kind,
            penalty=d.penalty,
        )
        for k, d in enumerate(steps)
    ]
    return of_rows.episode_of(*played, index=index, weight=weight)


def _row(steps: Sequence[Sequence[Did]], episodes: Sequence[int], padding: int) -> of_rows.Drawn:
    ids = [1] * (1 + padding)
    spans = []
    for e in episodes:
        for k, did in enumerate(steps[e]):
            ids += [1] + [did.word] * did.tokens
            spans.append((e, k, len(ids) - did.tokens, len(ids)))
    return of_rows.Drawn(ids, spans)
