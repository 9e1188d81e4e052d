"""Forward passes of the trainer: rows in chunks of bounded size, log-probabilities out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from agentsgym.training.chunks import Chunk, collate, pack
from agentsgym.training.compact_head import compact_head
from agentsgym.training.ranks import Ranks
from agentsgym.training.samples import TrainRow, weightless


class Scorer:
    """Scores rows with models that TRL has given its fused head.

    `max_tokens` bounds the padded tokens of a forward pass. All ranks must score at the same time,
    with as many passes: FSDP and DeepSpeed exchange something in each.
    """

    def __init__(self, accelerator: Any, ranks: Ranks, pad_token_id: int, max_tokens: int) -> None:
        self._accelerator = accelerator
        self._ranks = ranks
        self._pad_token_id = pad_token_id
        self._max_tokens = max_tokens

    def chunks(self, rows: Sequence[TrainRow], fillers: Sequence[TrainRow]) -> list[list[TrainRow]]:
        """Rows with agent tokens in chunks: at least one, and as many as the rank with most, since
        a rank that runs fewer passes would leave the others waiting. Fillers weigh nothing."""
        chunks = pack(rows, self._max_tokens)
        wanted = max([1, *self._ranks.gather([len(chunks)])])
        if len(chunks) == wanted:
            return chunks
        shortest = min(fillers, key=lambda row: row.length, default=None)
        filler = weightless(shortest, self._pad_token_id)
        if chunks and chunks[0][0].old_logps is not None:
            filler.old_logps = torch.zeros(2)
        return chunks + [[filler]] * (wanted - len(chunks))

    def forward(
        self, model: nn.Module, rows: Sequence[TrainRow]
    ) -> tuple[Chunk, torch.Tensor, torch.Tensor | None]:
        """The rows as a Chunk, with log-probabilities and entropies (nats) of shape (B, T-1), at
        the sampling temperature; 0 off agent tokens."""
        double = self._accelerator.unwrap_model(model).dtype == torch.float64
        dtype = torch.float64 if double else torch.float32
        chunk = collate(rows, self._pad_token_id, self._accelerator.device, dtype)
        with self._accelerator.autocast(), compact_head():
            output = model(
                input_ids=chunk.input_ids,
                attention_mask=chunk.attention_mask,
                labels=chunk.labels,
                fused_lm_head=True,
            )
        return chunk, output.log_probs, output.entropy

    @torch.no_grad()
    def logps_of(
        self, rows: Sequence[TrainRow], model: nn.Module
    ) -> list[tuple[TrainRow, torch.Tensor]]:
        """Each row with its log-probabilities, float tensors of shape (T,), 0 off agent tokens."""
        results = [(row, torch.zeros(row.length)) for row in rows if not row.agent_tokens]
        for part in self.chunks(rows, rows):
            _, logps, _ = self.forward(model, part)
            padded = nn.functional.pad(logps, (1, 0))
            results += [(row, padded[i, : row.length]) for i, row in enumerate(part)]
        return results
