"""The loss of a micro-batch, and the log-probabilities that it needs before the first update."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import nn

from agentsgym.training.loss.batch import TrainRollout, TrainRow
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.loss.objective import ChunkLoss, ObjectiveSettings, chunk_loss
from agentsgym.training.token_sample import TokenSample

ReferenceModel = Callable[[], AbstractContextManager[nn.Module]]
"""A context inside which the reference model of KL is available."""


class MicroBatchLoss:
    """Σ weight·ℓ over the agent tokens of rollouts, computed in chunks of rows.

    `reused`: a generation is used for several updates, so that the policy moves away from the one
    in `fill_logprobs`; `aux_loss`: the load of the model's experts is balanced. `sample` records
    the numbers of a few rollouts.
    """

    def __init__(
        self,
        scorer: Scorer,
        objective: ObjectiveSettings,
        sample: TokenSample,
        *,
        reused: bool,
        aux_loss: bool,
    ) -> None:
        self.scorer = scorer
        self.objective = objective
        self.sample = sample
        self.aux_loss = aux_loss
        self._reused = reused

    def fill_logprobs(
        self, rollouts: Sequence[TrainRollout], model: nn.Module, reference: ReferenceModel | None
    ) -> None:
        """Log-probabilities before any update if this generation is used for several, and those of
        the reference model if there is one."""
        rows = [row for rollout in rollouts for row in rollout.rows]
        if self._reused:
            for row, logps in self.scorer.logps_of(rows, model):
                row.old_logps = logps
        if reference is not None:
            with reference() as other:
                for row, logps in self.scorer.logps_of(rows, other):
                    row.ref_logps = logps

    def chunks(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> list[list[TrainRow]]:
        """Rows of the rollouts in forward chunks, the same number on every rank."""
        rows = [row for rollout in rollouts if rollout.in_loss for row in rollout.rows]
        if self.objective.needs_rollout_ratio and self._reused:
            self._fill_rollout_ratios(model, rollouts)
        fillers = [row for rollout in rollouts for row in rollout.rows]
        return self.scorer.chunks(rows, fillers)

    def of_chunk(self, model: nn.Module, rows: Sequence[TrainRow]) -> ChunkLoss:
        """Loss and metrics of one chunk, from one forward pass."""
        scores = self.scorer.forward(model, rows, aux_loss=self.aux_loss)
        found = chunk_loss(
            scores.logps, scores.entropy, scores.chunk, self.objective, scores.aux_loss
        )
        self.sample.take(rows, scores.logps, found.ratio, scores.entropy)
        return found

    def _fill_rollout_ratios(self, model: nn.Module, rollouts: Sequence[TrainRollout]) -> None:
        """The log-ratio of whole rollouts, whose rows may be in several chunks."""
        rows = [row for rollout in rollouts for row in rollout.rows]
        now = {id(row): logps for row, logps in self.scorer.logps_of(rows, model)}
        for rollout in rollouts:
            summed = 0.0
            for row in rollout.rows:
                assert row.old_logps is not None
                mask = torch.tensor(row.agent_token_mask, device=now[id(row)].device)
                summed += float(((now[id(row)] - row.old_logps) * mask).sum())
            for row in rollout.rows:
                row.rollout_log_ratio = (summed, rollout.agent_tokens)
