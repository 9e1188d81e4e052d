"""Examples for a pretrained model, from games that a text agent played.

Invariant: a target is a token of an action, or one of the tokens with which the chat template ends
the agent's turn. A model that starts a turn must end it, so the end is a target even where the row
does not have it yet. Actions that the environment could not read are context, never targets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentsgym.evaluation import default_cluster
from agentsgym.tokens import Codec
from agentsgym.training.warm_start.imitation import Example
from agentsgym.types import Rollout, Row, Step


@dataclass(frozen=True, slots=True)
class Lessons:
    """Examples to train on, and examples of other tasks for the held-out loss (may be empty)."""

    train: tuple[Example, ...]
    held_out: tuple[Example, ...]

    @property
    def targets(self) -> int:
        """Number of tokens to learn from."""
        return sum(int((example.weights > 0).sum()) for example in self.train)


def make_lessons(
    rollouts: Sequence[Rollout], codec: Codec, held_out_share: float, seed: int = 0
) -> Lessons:
    """The examples of `rollouts`, whose rows `codec` wrote.

    About `held_out_share` of the tasks (of the games, if all are of one task; tasks with one
    solution count as one) are held out. Raises ValueError if there is nothing to train on.
    """
    keys = [default_cluster(rollout.task_data) for rollout in rollouts]
    if len(set(keys)) == 1:
        keys = [str(number) for number in range(len(keys))]
    held = _drawn(sorted(set(keys)), held_out_share, seed)
    train: list[Example] = []
    held_out: list[Example] = []
    for key, rollout in zip(keys, rollouts, strict=True):
        (held_out if key in held else train).extend(examples_of_game(rollout, codec))
    if not train:
        raise ValueError("there is no game with a readable action to learn from")
    return Lessons(tuple(train), tuple(held_out))


def _drawn(keys: Sequence[str], share: float, seed: int) -> set[str]:
    count = round(share * len(keys))
    if share > 0 and len(keys) > 1:
        count = min(max(count, 1), len(keys) - 1)
    order = np.random.default_rng(seed).permutation(len(keys)).tolist()
    return {keys[number] for number in order[:count]}


def examples_of_game(rollout: Rollout, codec: Codec) -> list[Example]:
    """One example per row with targets; none for a failed rollout."""
    if rollout.failed:
        return []
    steps = {
        (e.index, number): step for e in rollout.episodes for number, step in enumerate(e.steps)
    }
    examples = [_example(row, steps, codec.turn_end) for row in rollout.rows]
    return [example for example in examples if example.weights.any()]


def readable(step: Step | None) -> bool:
    """Whether the environment understood an action."""
    if step is None or step.malformed:
        return False
    metrics = step.info.get("metrics")
    return not (isinstance(metrics, Mapping) and metrics.get("unparsed"))


def _example(row: Row, steps: dict[tuple[int, int], Step], end: tuple[int, ...]) -> Example:
    """The row up to its last target. A row of text lacks the end of its last turn, and that of
    every turn if no template writes it; a model samples it, and its rows have it."""
    ids: list[int] = []
    weights: list[float] = []
    position = 0

    def extend(tokens: Iterable[int], weight: float) -> None:
        taken = list(tokens)
        ids.extend(taken)
        weights.extend([weight] * len(taken))

    for span in row.spans:
        weight = float(readable(steps.get(span.key)))
        extend(row.token_ids[position : span.start], 0.0)
        extend(row.token_ids[span.start : span.stop], weight)
        position = span.stop
        extend(end, weight)
        if row.token_ids[position : position + len(end)] == end:
            position += len(end)
    last = max((i for i, weight in enumerate(weights) if weight), default=-1)
    return Example(
        np.array(ids[: last + 1], dtype=np.int64), np.array(weights[: last + 1], dtype=np.float32)
    )
