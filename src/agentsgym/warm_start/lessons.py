"""What a warm start learns from: recorded rollouts as supervised examples.

Invariant: a target is a token of an action, or one of the tokens with which the chat template ends
the agent's turn. A model that starts a turn must end it, so the end is a target even where the row
does not have it yet. Actions that the environment could not read are context, never targets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentsgym.evaluation import default_cluster
from agentsgym.tokens import Codec
from agentsgym.types import Rollout, Row
from agentsgym.types.rows import Ints

Float32s = npt.NDArray[np.float32]
DRAWN_WEIGHT = 0.25
"""Weight of the random actions that lead to where a game is played on. Without it an imitator asked
a second question in none of 128 games, with it in 36."""


@dataclass(frozen=True, slots=True)
class Example:
    """One row to imitate: `ids` (T,) and the loss weight of each as a target, `weights` (T,)."""

    ids: Ints
    weights: Float32s

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Lessons:
    """Examples to train on, and examples of other tasks for the held-out loss (may be empty)."""

    train: tuple[Example, ...]
    held_out: tuple[Example, ...] = ()

    @property
    def targets(self) -> int:
        """Number of tokens to learn from."""
        return sum(int((example.weights > 0).sum()) for example in self.train)


# -- examples of rollouts --------------------------------------------------------------------------


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
    held = _random_keys(sorted(set(keys)), held_out_share, seed)
    train: list[Example] = []
    held_out: list[Example] = []
    for key, rollout in zip(keys, rollouts, strict=True):
        (held_out if key in held else train).extend(examples_of(rollout, codec))
    if not train:
        raise ValueError("there is no game with a readable action to learn from")
    return Lessons(tuple(train), tuple(held_out))


def _random_keys(keys: Sequence[str], share: float, seed: int) -> set[str]:
    count = round(share * len(keys))
    if share > 0 and len(keys) > 1:
        count = min(max(count, 1), len(keys) - 1)
    order = np.random.default_rng(seed).permutation(len(keys)).tolist()
    return {keys[number] for number in order[:count]}


def examples_of(
    rollout: Rollout, codec: Codec, final_weight: float = 1.0, drawn: int = 0
) -> list[Example]:
    """One example per row with targets; none for a failed rollout. Targets have weight 1, those of
    each episode's last action `final_weight`, those of its first `drawn` steps `DRAWN_WEIGHT`."""
    if rollout.failed:
        return []
    placed = [(episode, step) for episode in rollout.episodes for step in episode.steps]
    weights = {
        (episode.index, step.index): (not step.unread)
        * (final_weight if step is episode.steps[-1] else 1.0)
        * (DRAWN_WEIGHT if number < drawn else 1.0)
        for number, (episode, step) in enumerate(placed)
    }
    examples = [_example(row, weights, codec.turn_end) for row in rollout.rows]
    return [example for example in examples if example.weights.any()]


def _example(row: Row, weight_of: Mapping[tuple[int, int], float], end: tuple[int, ...]) -> Example:
    """The row up to its last target. A row of text lacks the end of its last turn, and that of
    every turn if no template writes it; a model samples it, and its rows have it."""
    ids: list[int] = []
    weights: list[float] = []
    played = tuple(row.token_ids.tolist())
    position = 0

    def extend(tokens: Iterable[int], weight: float) -> None:
        more = list(tokens)
        ids.extend(more)
        weights.extend([weight] * len(more))

    for span in row.spans:
        weight = weight_of.get(span.key, 0.0)
        action = played[span.start : span.stop]
        extend(played[position : span.start], 0.0)
        extend(action, weight)
        position = span.stop
        if action[len(action) - len(end) :] == end:
            continue
        extend(end, weight)
        if played[position : position + len(end)] == end:
            position += len(end)
    last = max((i for i, weight in enumerate(weights) if weight), default=-1)
    return Example(
        np.array(ids[: last + 1], dtype=np.int64), np.array(weights[: last + 1], dtype=np.float32)
    )


def normalize(examples: Sequence[Example], batch_size: int) -> list[Example]:
    """The examples with their weights scaled so that a batch's weights sum to 1 on average.

    The scale is the same for all: dividing each batch by its own sum would give the targets of
    short games more weight than those of long games.
    """
    scale = -(-len(examples) // batch_size) / max(sum_of_weights(examples), 1e-8)
    return [Example(example.ids, example.weights * np.float32(scale)) for example in examples]


def sum_of_weights(examples: Sequence[Example]) -> float:
    """The sum of all weights."""
    return sum(float(example.weights.sum()) for example in examples)


# -- batches ---------------------------------------------------------------------------------------


Batches = Callable[[int], list[Example]]
"""Gives the examples of an update by its number; their weights sum to 1 on average."""


def epoch_batches(examples: Sequence[Example], size: int, seed: int) -> Batches:
    """Batches of stored examples: each epoch takes every example once, in a new order that depends
    on the seed and the epoch alone."""
    examples = normalize(examples, size)
    per_epoch = -(-len(examples) // size)

    def batch(step: int) -> list[Example]:
        epoch, number = divmod(step, per_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(len(examples)).tolist()
        return [examples[i] for i in order[number * size : (number + 1) * size]]

    return batch
