"""Rollouts drawn by hand: what was earned, in how many tokens, and where."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentsgym.types import Episode, Rollout, Row, Step, StepSpan

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

    Each row begins with two tokens that are not the agent's, each step is followed by one, and
    `padding` more stand at the row's end.
    """
    name = f"{group}-{index}"
    steps = [[d if isinstance(d, Did) else Did(d) for d in episode] for episode in episodes]
    parts = [[k] for k in range(len(steps))] if row_per_episode else [list(range(len(steps)))]
    return Rollout(
        session_id=name,
        group=group,
        index=index,
        env_class_path=env,
        env_config={},
        task_data={},
        episodes=tuple(
            _episode(k, episode, 0.0 if k < free_shots else 1.0) for k, episode in enumerate(steps)
        ),
        rows=tuple(_row(name, group, index, steps, part, padding) for part in parts),
        error="boom" if failed else None,
        reward_placement=placement,
    )


def _episode(index: int, steps: Sequence[Did], weight: float) -> Episode:
    played = tuple(
        Step(
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
    )
    return Episode(index, played, sum(d.reward for d in steps), weight, "done")


def _row(
    name: str,
    group: int,
    index: int,
    steps: Sequence[Sequence[Did]],
    episodes: Sequence[int],
    padding: int,
) -> Row:
    ids = [1, 1]
    spans = []
    for e in episodes:
        for k, did in enumerate(steps[e]):
            spans.append(StepSpan(e, k, len(ids), len(ids) + did.tokens))
            ids += [did.word] * did.tokens + [1]
    ids += [1] * padding
    return Row(name, group, index, np.array(ids), np.zeros(len(ids)), tuple(spans))
