"""Supervised examples from transcripts, and their loss: agent tokens only.

Invariant: a target is a token of the agent, or the end-of-turn token directly after its text. In a
text agent's rows that token is outside the mask, as part of the chat template, although a model
must sample it; after the last action the row does not have it yet.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from agentsgym.types import Rollout, Row
from agentsgym.types.records import Ints

Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Example:
    """One row to imitate: `ids` (T,) and the loss weight of each as a target, `weights` (T,)."""

    ids: Ints
    weights: Float32s


def examples_of(
    rollouts: Iterable[Rollout], end_id: int | None, final_action_weight: float = 1.0
) -> list[Example]:
    """One example per row with agent tokens. `final_action_weight` is the loss weight of the
    tokens of each episode's last action; all other targets have weight 1. `end_id` is the
    end-of-turn token (None: there is none). Raises RuntimeError for a failed rollout."""
    examples = []
    for rollout in rollouts:
        if rollout.failed:
            raise RuntimeError(f"a scripted game failed:\n{rollout.error}")
        last = {episode.index: len(episode.steps) - 1 for episode in rollout.episodes}
        examples += [
            _example(row, end_id, last, final_action_weight) for row in rollout.rows if row.spans
        ]
    return examples


def _example(row: Row, end_id: int | None, last: dict[int, int], final_weight: float) -> Example:
    ids = list(row.token_ids)
    if end_id is not None and row.spans[-1].stop == len(ids) and ids[-1] != end_id:
        ids.append(end_id)
    weights = np.zeros(len(ids), dtype=np.float32)
    for span in row.spans:
        stop = span.stop + (span.stop < len(ids) and ids[span.stop] == end_id)
        final = last.get(span.episode) == span.step
        weights[span.start : stop] = final_weight if final else 1.0
    return Example(np.array(ids, dtype=np.int64), weights)


def normalize(examples: Sequence[Example], batch_size: int) -> list[Example]:
    """The examples with their weights scaled so that a batch's weights sum to 1 on average.

    The scale is the same for all: games of similar length share a batch, and dividing each batch by
    its own sum would give the targets of short games more weight than those of long games.
    """
    total = sum(float(example.weights.sum()) for example in examples)
    scale = -(-len(examples) // batch_size) / max(total, 1e-8)
    return [Example(example.ids, example.weights * np.float32(scale)) for example in examples]


def batches(
    examples: Sequence[Example], size: int, rng: np.random.Generator
) -> Iterator[list[Example]]:
    """All examples in batches of `size` of similar length, the batches in random order."""
    order = sorted(rng.permutation(len(examples)).tolist(), key=lambda i: len(examples[i].ids))
    parts = [order[start : start + size] for start in range(0, len(order), size)]
    for k in rng.permutation(len(parts)).tolist():
        yield [examples[i] for i in parts[k]]


def pad(examples: Sequence[Example], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`ids` int64 and `weights` float32, shape (B, T), padded on the right.

    Padding needs no attention mask, because a causal model never attends to later positions.
    """
    length = max(len(example.ids) for example in examples)
    ids = np.full((len(examples), length), pad_id, dtype=np.int64)
    weights = np.zeros((len(examples), length), dtype=np.float32)
    for i, example in enumerate(examples):
        ids[i, : len(example.ids)] = example.ids
        weights[i, : len(example.ids)] = example.weights
    return torch.from_numpy(ids), torch.from_numpy(weights)


def imitation_loss(model: Any, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Σ weight · cross-entropy (nats) of each id given the ids before it.

    Both have shape (B, T). Logits are computed at targets only. 0 if there are no targets.
    """
    device = next(model.parameters()).device
    ids, weights = ids.to(device), weights.to(device)
    hidden = model.base_model(input_ids=ids[:, :-1]).last_hidden_state
    wanted = weights[:, 1:] > 0
    logits = model.get_output_embeddings()(hidden[wanted]).float()
    losses = torch.nn.functional.cross_entropy(logits, ids[:, 1:][wanted], reduction="none")
    return (losses * weights[:, 1:][wanted]).sum()
