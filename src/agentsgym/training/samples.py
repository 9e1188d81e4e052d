"""What a micro-batch holds: rollouts with their advantages, and their rows packed for a forward.

The loss is Σ weight·ℓ over agent tokens and every weight is fixed here, before anything is
split, so that rows, chunks, accumulation and processes cannot change it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentsgym.credit.table import Floats
from agentsgym.types import Rollout, Row


@dataclass(slots=True)
class TrainRow:
    """A row of T tokens with its advantages (float64, shape (T,)).

    `weight` is the loss weight of each of its agent tokens. `old_logps` and `ref_logps` (float,
    shape (T,)) are filled in where the loss needs them.
    """

    row: Row
    advantages: Floats
    weight: float = 0.0
    entropy_weight: float = 0.0
    old_logps: torch.Tensor | None = None
    ref_logps: torch.Tensor | None = None

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.row.token_ids)

    @property
    def agent_tokens(self) -> int:
        """Number of agent tokens."""
        return sum(self.row.agent_token_mask)


@dataclass(slots=True)
class TrainRollout:
    """A rollout in the trainer: the unit that TRL shuffles and splits. `live` says whether it
    counts in the loss's denominators."""

    rollout: Rollout
    rows: list[TrainRow]
    live: bool

    @property
    def agent_tokens(self) -> int:
        """Number of agent tokens in all rows."""
        return sum(row.agent_tokens for row in self.rows)


def make_rollouts(
    rollouts: Sequence[Rollout], advantages: Sequence[Floats], live: Sequence[bool]
) -> list[TrainRollout]:
    """Pair rollouts with the advantages of their rows (in the order of `RolloutBatch.rows`)."""
    remaining = iter(advantages)
    return [
        TrainRollout(rollout, [TrainRow(row, next(remaining)) for row in rollout.rows], alive)
        for rollout, alive in zip(rollouts, live, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Denominators of one optimiser window, summed over all ranks."""

    live_rollouts: float
    agent_tokens: float


def count(rollouts: Sequence[TrainRollout]) -> WindowCounts:
    """Live rollouts and their agent tokens on this rank."""
    live = [rollout for rollout in rollouts if rollout.live]
    return WindowCounts(len(live), sum(rollout.agent_tokens for rollout in live))


def assign_weights(
    rollouts: Sequence[TrainRollout],
    counts: WindowCounts,
    loss_type: str,
    norm_tokens: int | None = None,
) -> None:
    """Fix the loss weight of every agent token.

    "grpo": 1/(live rollouts × the rollout's agent tokens); "dapo": 1/(agent tokens in the
    window); "dr_grpo": 1/(live rollouts × `norm_tokens`). Rollouts that are not live weigh 0.
    The weight of the entropy bonus is 1/(agent tokens in the window) for all.
    """
    for rollout in rollouts:
        weight = _weight(rollout, counts, loss_type, norm_tokens) if rollout.live else 0.0
        entropy = 1.0 / max(counts.agent_tokens, 1.0) if rollout.live else 0.0
        for row in rollout.rows:
            row.weight = weight
            row.entropy_weight = entropy


def _weight(
    rollout: TrainRollout, counts: WindowCounts, loss_type: str, norm_tokens: int | None
) -> float:
    if loss_type == "grpo":
        return 1.0 / (max(counts.live_rollouts, 1.0) * max(rollout.agent_tokens, 1))
    if loss_type == "dapo":
        return 1.0 / max(counts.agent_tokens, 1.0)
    assert norm_tokens is not None
    return 1.0 / (max(counts.live_rollouts, 1.0) * norm_tokens)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows padded on the right to a common length T, shape (B, T) each.

    `input_ids` int64, `attention_mask` int64, `labels` int64 (-100 off agent tokens); and aligned
    with `labels[:, 1:]`, so of shape (B, T-1): `mask`, `advantages`, `weight`, `entropy_weight`,
    and, where used, `old_logps`, `ref_logps`.
    """

    rows: tuple[TrainRow, ...]
    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    labels: torch.Tensor
    mask: torch.Tensor
    advantages: torch.Tensor
    weight: torch.Tensor
    entropy_weight: torch.Tensor
    old_logps: torch.Tensor | None
    ref_logps: torch.Tensor | None


def pack(rows: Sequence[TrainRow], max_tokens: int) -> list[list[TrainRow]]:
    """Divide rows into chunks of at most `max_tokens` padded tokens, rows of similar length
    together. A row that is longer than that gets a chunk of its own. Rows without agent tokens
    carry no loss and are left out."""
    chunks: list[list[TrainRow]] = []
    for row in sorted((r for r in rows if r.agent_tokens), key=lambda r: r.length):
        if not chunks or (len(chunks[-1]) + 1) * row.length > max_tokens:
            chunks.append([])
        chunks[-1].append(row)
    return chunks


def collate(
    rows: Sequence[TrainRow],
    pad_token_id: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Chunk:
    """Pad rows into the tensors of a Chunk; `dtype` is that of advantages and weights."""
    length = max(row.length for row in rows)
    ids = np.full((len(rows), length), pad_token_id, dtype=np.int64)
    attention = np.zeros((len(rows), length), dtype=np.int64)
    mask = np.zeros((len(rows), length), dtype=np.int64)
    advantages = np.zeros((len(rows), length), dtype=np.float64)
    for i, row in enumerate(rows):
        ids[i, : row.length] = row.row.token_ids
        attention[i, : row.length] = 1
        mask[i, : row.length] = row.row.agent_token_mask
        advantages[i, : row.length] = row.advantages
    input_ids = torch.from_numpy(ids).to(device)
    agent = torch.from_numpy(mask).to(device)[:, 1:]
    weight = torch.tensor([[row.weight] for row in rows], dtype=dtype, device=device)
    entropy = torch.tensor([[row.entropy_weight] for row in rows], dtype=dtype, device=device)
    return Chunk(
        rows=tuple(rows),
        input_ids=input_ids,
        attention_mask=torch.from_numpy(attention).to(device),
        labels=input_ids.masked_fill(torch.from_numpy(mask == 0).to(device), -100),
        mask=agent.to(dtype),
        advantages=torch.from_numpy(advantages).to(device=device, dtype=dtype)[:, 1:] * agent,
        weight=weight * agent,
        entropy_weight=entropy * agent,
        old_logps=_stack([row.old_logps for row in rows], length, device),
        ref_logps=_stack([row.ref_logps for row in rows], length, device),
    )


def _stack(
    parts: Sequence[torch.Tensor | None], length: int, device: torch.device
) -> torch.Tensor | None:
    """Per-row tensors of shape (T,) as one (B, T-1), aligned with the labels."""
    if any(part is None for part in parts):
        return None
    rows = [torch.nn.functional.pad(p, (0, length - len(p))) for p in parts if p is not None]
    return torch.stack(rows).to(device)[:, 1:]
