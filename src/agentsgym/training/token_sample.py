"""The trainer's numbers for the tokens of a few rollouts, taken from the loss as it is computed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import TrainerCallback

from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.batch import Chunk, TrainRollout, TrainRow
from agentsgym.types.token_records import StepNumbers, TokenRecord

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
        self._rows: dict[int, tuple[TrainRow, str]] = {}
        self._numbers: dict[str, dict[tuple[int, int], StepNumbers]] = {}
        self._step = 0

    def choose(self, rollouts: Sequence[TrainRollout], step: int) -> None:
        """Record rollouts of this generation, spread evenly over those in the loss."""
        live = [rollout for rollout in rollouts if rollout.in_loss and rollout.agent_tokens]
        number = min(self._count, len(live))
        chosen = [live[place * len(live) // number] for place in range(number)]
        # The rows are kept, so that their ids stay theirs.
        self._rows = {id(row): (row, r.played.session_id) for r in chosen for row in r.rows}
        self._numbers = {}
        self._step = step

    def record(
        self,
        chunk: Chunk,
        logps: torch.Tensor,
        ratio: torch.Tensor,
        entropy: torch.Tensor | None,
    ) -> None:
        """Record the numbers of a chunk's agent tokens, tensors of shape (P,)."""
        if not any(id(row) in self._rows for row in chunk.rows):
            return
        places = [chunk.by_row(values.detach().float()) for values in (logps, ratio)]
        entropy_places = None if entropy is None else chunk.by_row(entropy.detach().float())
        for place, row in enumerate(chunk.rows):
            if id(row) not in self._rows:
                continue
            _, session = self._rows[id(row)]
            own_logps = places[0][place] if row.old_logps is None else row.old_logps
            old, ratios = own_logps.tolist(), places[1][place].tolist()
            entropies = None if entropy_places is None else entropy_places[place].tolist()
            own = self._numbers.setdefault(session, {})
            for span in row.spans:
                part = slice(span.start, span.stop)
                entropy_part = None if entropies is None else tuple(entropies[part])
                own[span.key] = StepNumbers(tuple(old[part]), tuple(ratios[part]), entropy_part)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the last update of a generation."""
        if state.global_step % self._updates == 0:
            self._hand_over()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Training may end within a generation."""
        self._hand_over()

    def _hand_over(self) -> None:
        records = [TokenRecord(session, steps) for session, steps in self._numbers.items()]
        self._rows, self._numbers = {}, {}
        if records and self._sink is not None:
            self._sink(records, {"step": self._step, "rank": self._rank})
