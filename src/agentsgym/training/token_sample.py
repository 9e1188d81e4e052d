"""The trainer's numbers for the tokens of a few rollouts, taken from the loss as it is computed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.batch import Chunk, TrainRollout, TrainRow
from agentsgym.types.rows import Floats, StepNumbers, TokenRecord

TokenSink = Callable[[Sequence[TokenRecord], Mapping[str, Any]], None]
"""Receives this rank's records of each generation, with its `{"step": global step, "rank": of this
process}`, after its last update."""


class TokenSample(TrainerCallback):  # type: ignore[misc]
    """Records the numbers of `token_records` rollouts of each generation, and passes them to the
    sink after its last update. No forward pass is made for it, and nothing random: training is the
    same without it."""

    def __init__(self, sink: TokenSink | None, rank: int, args: GRPOEnvConfig) -> None:
        self._sink = sink
        self._rank = rank
        self._count = 0 if sink is None else args.token_records
        self._updates = args.updates_per_generation
        self._numbers: dict[str, dict[tuple[int, int], StepNumbers]] = {}
        self._step = 0

    def choose(self, rollouts: Sequence[TrainRollout], step: int) -> None:
        """Record rollouts of this generation, spread evenly over those in the loss."""
        live = [rollout for rollout in rollouts if rollout.in_loss and rollout.agent_tokens]
        number = min(self._count, len(live))
        chosen = [live[place * len(live) // number] for place in range(number)]
        self._numbers = {rollout.played.session_id: {} for rollout in chosen}
        self._step = step

    def record(
        self,
        chunk: Chunk,
        logps: torch.Tensor,
        ratio: torch.Tensor,
        entropy: torch.Tensor | None,
    ) -> None:
        """Record the numbers of a chunk's tokens, tensors of shape (P,)."""
        if not any(row.session_id in self._numbers for row in chunk.rows):
            return
        given = [logps, ratio] if entropy is None else [logps, ratio, entropy]
        parts = zip(*(chunk.split(values.detach().float()) for values in given), strict=True)
        for row, (logps, *others) in zip(chunk.rows, parts, strict=True):
            if row.session_id in self._numbers:
                own = row.logps.get("old", logps), *others
                columns = [_by_token(row, x, float(k == 1)) for k, x in enumerate(own)]
                for span in row.spans:
                    of_step = [tuple(x[span.start : span.stop].tolist()) for x in columns]
                    entropies = of_step[2] if len(of_step) > 2 else None
                    numbers = StepNumbers(of_step[0], of_step[1], entropies)
                    self._numbers[row.session_id][span.key] = numbers

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the last update of a generation."""
        if state.global_step % self._updates == 0:
            self._hand_over()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Training may end within a generation."""
        self._hand_over()

    def _hand_over(self) -> None:
        numbers, self._numbers = self._numbers, {}
        records = [TokenRecord(session, steps) for session, steps in numbers.items() if steps]
        if records and self._sink is not None:
            self._sink(records, {"step": self._step, "rank": self._rank})


def _by_token(row: TrainRow, values: torch.Tensor, others: float) -> Floats:
    """Values of a row's tokens with loss for all of its tokens, and what `others` have."""
    whole = np.full(row.length, others)
    whole[row.positions] = values.cpu()
    return whole
