"""The loss's inputs: rollouts with their advantages, in rows, and the agent tokens of a forward
pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from agentsgym.generation.models import without_adapter
from agentsgym.types import Rollout, Row, StepSpan
from agentsgym.types.rows import Flags, Floats, Ints, chosen
from agentsgym.types.supports import NO_SUPPORTS, Supports, mask_of

STREAMS = ("policy", "reference", "entropy", "teacher")
"""The terms of the loss, each with weights of its own."""


@dataclass(slots=True)
class TrainRow:
    """A row of T tokens, of which the P in its `spans` carry loss: those that were a choice, as its
    `supports` say.

    `token_ids` int32, `logprobs` float32 (the sampler's) and `advantages` float64, all of shape
    (T,), are views of the arrays of a `Row` and of its advantages; `sampled` is the `Row`'s, and
    `session_id` that of its rollout.
    `weights` are those of each of the P tokens by stream, 0 without an entry, and `logps` the
    log-probabilities (float, shape (P,)) of models that the loss needs beside the policy: "old",
    "reference" and "teacher". `rollout_log_ratio` is sum and number of logp − old logp over the
    rollout's tokens with loss, if the loss needs it.
    """

    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    advantages: Floats
    spans: tuple[StepSpan, ...]
    sampled: bool = True
    session_id: str = ""
    weights: dict[str, float] = field(default_factory=dict)
    logps: dict[str, torch.Tensor] = field(default_factory=dict)
    rollout_log_ratio: tuple[float, int] = (0.0, 0)
    supports: Supports = NO_SUPPORTS

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.token_ids)

    @property
    def agent_tokens(self) -> int:
        """P."""
        if not len(self.supports):
            return sum(max(0, span.stop - max(span.start, 1)) for span in self.spans)
        return sum(map(len, self.places))

    @property
    def places(self) -> list[Ints]:
        """Where the tokens with loss of each span stand. A row's first token has no probability and
        carries none."""
        every = chosen(self.spans, self.supports)
        return [at[1:] if len(at) and at[0] == 0 else at for at in every]

    @property
    def positions(self) -> Ints:
        """Where the tokens with loss stand, in ascending order; shape (P,)."""
        return np.concatenate([np.zeros(0, np.int64), *self.places])


@dataclass(slots=True)
class TrainRollout:
    """A rollout in the trainer: the unit that TRL shuffles and splits. `played` is the rollout
    itself; `in_loss` says whether it counts in the loss's denominators, and `replayed` whether it
    was trained on before."""

    played: Rollout
    rows: list[TrainRow]
    in_loss: bool
    replayed: bool = False

    @property
    def agent_tokens(self) -> int:
        """Number of tokens with loss in all rows."""
        return sum(row.agent_tokens for row in self.rows)


def make_rollouts(
    rollouts: Sequence[Rollout],
    advantages: Sequence[Floats],
    in_loss: Sequence[bool],
    train_on: str = "rollout",
    *,
    truncated: bool = True,
) -> list[TrainRollout]:
    """Pair rollouts with the advantages of their rows (in the order of `RolloutBatch.rows`).

    `train_on="steps"` makes one row per step: its whole context, with loss only on its own tokens.
    Without `truncated`, the tokens of actions that reached the token cap are mere context.
    """
    remaining = iter(advantages)
    result = []
    for rollout, counts in zip(rollouts, in_loss, strict=True):
        rows: list[TrainRow] = []
        for row in rollout.rows:
            values, spans = next(remaining), _spans_with_loss(rollout, row, truncated)
            steps = train_on == "steps"
            for stop, own in [(s.stop, (s,)) for s in spans] if steps else [(None, spans)]:
                arrays = row.token_ids[:stop], row.logprobs[:stop], values[:stop]
                rows.append(TrainRow(*arrays, own, row.sampled, rollout.session_id))
                rows[-1].supports = row.supports.between(0, rows[-1].length)
        result.append(TrainRollout(rollout, rows, bool(counts)))
    return result


def _spans_with_loss(rollout: Rollout, row: Row, truncated: bool) -> tuple[StepSpan, ...]:
    if rollout.failed or truncated:
        return () if rollout.failed else row.spans
    steps = [rollout.episodes[span.episode].steps[span.step] for span in row.spans]
    return tuple(s for s, step in zip(row.spans, steps, strict=True) if not step.truncated)


def bare_row(
    token_ids: NDArray[np.int32], spans: tuple[StepSpan, ...], session_id: str = ""
) -> TrainRow:
    """A row for a forward pass alone: its advantages and the sampler's log-probabilities are 0."""
    nothing: Any = np.broadcast_to(np.float32(0), token_ids.shape)
    return TrainRow(token_ids, nothing, nothing, spans, True, session_id)


# -- chunks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    """The P tokens with loss in the rows of one forward pass, row by row.

    `row` and `position` (int64, shape (P,), numpy) say where each stands. On the device, of shape
    (P,): `targets` int64 (the token ids), `advantages`, `weights` by stream, `span` int64 (number
    of the step within the chunk, which has `steps`), `in_row` int64 (`row`), `sampler_logps` with
    `sampled` (1.0 if an engine gave them), `rollout_log_ratio` and `rollout_tokens`, and those
    `logps` that all rows have. `supports` say what the tokens were chosen from, by their number.
    """

    rows: tuple[TrainRow, ...]
    row: Ints
    position: Ints
    targets: torch.Tensor
    advantages: torch.Tensor
    weights: dict[str, torch.Tensor]
    steps: int
    span: torch.Tensor
    in_row: torch.Tensor
    sampler_logps: torch.Tensor
    sampled: torch.Tensor
    rollout_log_ratio: torch.Tensor
    rollout_tokens: torch.Tensor
    logps: dict[str, torch.Tensor]
    supports: Supports = NO_SUPPORTS

    def split(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Values of shape (P,) by row."""
        return torch.split(values, [row.agent_tokens for row in self.rows])

    def columns(self, vocabulary: int) -> tuple[Ints, Flags]:
        """The U ids that any token was chosen from, int64, ascending; and for each token those that
        it was not chosen from, bool of shape (P, U)."""
        at, wide = self.supports.at, list(self.supports.wide())
        whole = len(at) < len(self.position) or wide
        ids = np.arange(vocabulary) if whole else np.unique(self.supports.ids).astype(np.int64)
        outside = np.zeros((len(self.position), len(ids)), np.bool_)
        outside[at] = True
        narrow = self.supports.ids >= 0
        owner, own = np.repeat(at, self.supports.sizes)[narrow], self.supports.ids[narrow]
        outside[owner, np.searchsorted(ids, own)] = False
        for places, lacks in wide:
            outside[places] = ~mask_of(lacks, vocabulary)
        return ids, outside


def collate(
    rows: Sequence[TrainRow], device: torch.device, dtype: torch.dtype = torch.float32
) -> Chunk:
    """The agent tokens of rows as a Chunk; `dtype` is the type of its floating-point tensors. All
    numbers go to the device in two copies, for each of which the CPU may wait."""
    places = [row.places for row in rows]
    positions = [np.concatenate([np.zeros(0, np.int64), *own]) for own in places]
    counts = [len(at) for at in positions]
    sizes = [len(at) for own in places for at in own]

    def at_tokens(name: str) -> NDArray[Any]:
        values = [getattr(row, name)[at] for row, at in zip(rows, positions, strict=True)]
        return np.concatenate(values)

    def per_row(values: Sequence[float]) -> NDArray[Any]:
        return np.repeat(values, counts)

    in_row = np.repeat(np.arange(len(rows)), counts)
    ints = np.stack([at_tokens("token_ids"), np.repeat(np.arange(len(sizes)), sizes), in_row])
    targets, span, on_device = torch.from_numpy(ints).to(device).unbind()
    floats = [
        at_tokens("advantages"),
        at_tokens("logprobs"),
        per_row([float(row.sampled) for row in rows]),
        per_row([row.rollout_log_ratio[0] for row in rows]),
        per_row([row.rollout_log_ratio[1] for row in rows]),
        *(per_row([row.weights.get(name, 0.0) for row in rows]) for name in STREAMS),
    ]
    advantages, sampler_logps, sampled, log_ratio, tokens, *weights = (
        torch.from_numpy(np.stack(floats)).to(dtype).to(device).unbind()
    )
    complete = [name for name in rows[0].logps if all(name in row.logps for row in rows)]
    return Chunk(
        rows=tuple(rows),
        row=in_row,
        position=np.concatenate(positions),
        targets=targets,
        advantages=advantages,
        weights=dict(zip(STREAMS, weights, strict=True)),
        steps=len(sizes),
        span=span,
        in_row=on_device,
        sampler_logps=sampler_logps,
        sampled=sampled,
        rollout_log_ratio=log_ratio,
        rollout_tokens=tokens,
        logps={
            name: torch.cat([row.logps[name] for row in rows]).to(device=device, dtype=dtype)
            for name in complete
        },
        supports=_supports_of(rows, positions),
    )


def _supports_of(rows: Sequence[TrainRow], positions: Sequence[Ints]) -> Supports:
    """The supports of the tokens at these positions of each row, by their number."""
    sets, first = [], 0
    for row, at in zip(rows, positions, strict=True):
        if len(row.supports):
            numbers = {place: first + k for k, place in enumerate(at.tolist())}
            sets += [(numbers[place], ids) for place, ids in row.supports if place in numbers]
        first += len(at)
    return Supports.of(sets)


@contextmanager
def hidden_states_at(model: Any, index: torch.Tensor, size: int) -> Iterator[list[torch.Tensor]]:
    """Inside the block the output layer of `model`, a causal language model (with an adapter or
    not), computes P tokens of a pass only: its hidden states become those at `index`, an int64
    tensor of shape (P,) over the B·T = `size` tokens of the pass, as (1, P, width). The virtual
    tokens that PEFT's prompt tuning puts before each row are no tokens of the pass. Yields a
    list, to which a pass adds these hidden states as (P, width)."""

    def pick(_: nn.Module, __: Any, output: Any) -> Any:
        hidden = output.last_hidden_state
        hidden = hidden[:, -(size // len(hidden)) :]
        output.last_hidden_state = hidden.flatten(0, 1).index_select(0, index)[None]
        picked.append(output.last_hidden_state[0])
        return output

    picked: list[torch.Tensor] = []

    handle = without_adapter(model).base_model.register_forward_hook(pick)
    try:
        yield picked
    finally:
        handle.remove()
