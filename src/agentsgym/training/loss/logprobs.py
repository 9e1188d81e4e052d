"""Forward passes of the trainer: from rows in chunks of limited size to log-probabilities."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.batch import (
    Chunk,
    TrainRow,
    collate,
    logits_only_at,
    pack,
    padded_length,
    weightless,
)
from agentsgym.training.ranks import Ranks
from agentsgym.training.trl_base import fused_head_on_agent_tokens


@dataclass(frozen=True, slots=True)
class Scores:
    """The result of a forward pass: log-probabilities and entropies (nats) of shape (B, T-1), at
    the sampling temperature, 0 off agent tokens; and the auxiliary loss of a mixture of experts, a
    scalar, if requested."""

    chunk: Chunk
    logps: torch.Tensor
    entropy: torch.Tensor | None
    aux_loss: torch.Tensor | None


class Scorer:
    """Computes log-probabilities with models that have TRL's fused head.

    `max_tokens_per_forward` limits the padded tokens of a forward pass, whose rows are padded to
    `pad_to_multiple_of` tokens. All ranks must call it at the same time and with the same number of
    passes: FSDP and DeepSpeed communicate in each pass.
    """

    def __init__(
        self, accelerator: Any, ranks: Ranks, pad_token_id: int, args: GRPOEnvConfig
    ) -> None:
        self._accelerator = accelerator
        self._ranks = ranks
        self._pad_token_id = pad_token_id
        self._max_tokens = args.max_tokens_per_forward
        self._multiple: int | None = args.pad_to_multiple_of

    def chunks(self, rows: Iterable[TrainRow]) -> list[list[TrainRow]]:
        """Rows with agent tokens in chunks: at least one, and as many as on the rank with most,
        because other ranks would wait for a rank with fewer passes. What is added has weight 0."""
        chunks = pack((row for row in rows if row.agent_tokens), self._max_tokens)
        count = max([1, *self._ranks.gather([len(chunks)])])
        return chunks + [[weightless(self._pad_token_id)]] * (count - len(chunks))

    def tokens_read(self, chunks: Sequence[Sequence[TrainRow]], *, padding: bool) -> int:
        """Tokens in the forward passes of these chunks, with or without their padding."""
        if padding:
            return sum(len(rows) * padded_length(rows, self._multiple) for rows in chunks)
        return sum(row.length for rows in chunks for row in rows)

    def forward(
        self, model: nn.Module, rows: Sequence[TrainRow], *, aux_loss: bool = False
    ) -> Scores:
        """Compute the log-probabilities of the rows in one pass."""
        plain = self._accelerator.unwrap_model(model)
        double = plain.dtype == torch.float64
        dtype = torch.float64 if double else torch.float32
        device = self._accelerator.device
        chunk = collate(rows, self._pad_token_id, device, dtype, self._multiple)
        options = {"output_router_logits": True} if aux_loss else {}
        tiles = fused_head_on_agent_tokens(device, plain.config.get_text_config().vocab_size)
        with self._accelerator.autocast(), tiles:
            output = model(
                input_ids=chunk.input_ids,
                attention_mask=chunk.attention_mask,
                labels=chunk.labels,
                fused_lm_head=True,
                **options,
            )
        return Scores(chunk, output.log_probs, output.entropy, output.aux_loss)

    def logits(
        self, model: nn.Module, rows: Sequence[TrainRow], places: Sequence[tuple[int, int]]
    ) -> torch.Tensor:
        """The logits after (row, position) for each of P places, float, shape (P, V); the others
        are not computed."""
        plain = self._accelerator.unwrap_model(model)
        device = self._accelerator.device
        chunk = collate(rows, self._pad_token_id, device, multiple=self._multiple)
        at = logits_only_at(plain.get_output_embeddings(), *map(list, zip(*places, strict=True)))
        with self._accelerator.autocast(), at:
            output = model(
                input_ids=chunk.input_ids, attention_mask=chunk.attention_mask, use_cache=False
            )
        logits: torch.Tensor = output.logits[0]
        return logits if logits.dtype == torch.float64 else logits.float()

    @torch.no_grad()
    def logps_of(
        self, rows: Sequence[TrainRow], model: nn.Module
    ) -> list[tuple[TrainRow, torch.Tensor]]:
        """Each row with its log-probabilities, float tensors of shape (T,), 0 off agent tokens."""
        results = [(row, torch.zeros(row.length)) for row in rows if not row.agent_tokens]
        for part in self.chunks(rows):
            padded = nn.functional.pad(self.forward(model, part).logps, (1, 0))
            results += [(row, padded[i, : row.length]) for i, row in enumerate(part)]
        return results
