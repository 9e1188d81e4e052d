"""Forward passes of the trainer: from rows in chunks of limited size to log-probabilities."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate.utils import DistributedType
from torch import nn

from agentsgym.generation.embedded.attention import packed_attention_on
from agentsgym.generation.embedded.compatibility import narrow_windows, tolerance_of, unpackable
from agentsgym.generation.embedded.forward import head_over, is_of_device
from agentsgym.generation.embedded.precision import InFloat32
from agentsgym.generation.models import UnsupportedModelError
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss import forest
from agentsgym.training.loss.activations import Activations
from agentsgym.training.loss.answers import WholeRow, WholeRows
from agentsgym.training.loss.batch import (
    Chunk,
    TrainRollout,
    TrainRow,
    bare_row,
    collate,
    hidden_states_at,
)
from agentsgym.training.loss.forest import Forest, Layout
from agentsgym.training.loss.layout import PaddedRows, pack
from agentsgym.training.ranks import Ranks
from agentsgym.training.trl_base import fused_head_tiles, score_labels
from agentsgym.types import StepSpan
from agentsgym.types.rows import Ints

logger = logging.getLogger(__name__)

_SHARDED = (DistributedType.FSDP, DistributedType.DEEPSPEED)


@dataclass(frozen=True, slots=True)
class Scores:
    """The result of a forward pass: log-probabilities and entropies (nats) of the chunk's agent
    tokens, shape (P,), at the sampling temperature."""

    chunk: Chunk
    logps: torch.Tensor
    entropy: torch.Tensor | None


Scored = Iterable[tuple[TrainRow, torch.Tensor]]
"""Rows with the log-probabilities of their tokens with loss, shape (P,)."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Log-probabilities that the loss needs beside the policy's: `name` in `TrainRow.logps`, how
    they are computed, and the rollouts whose rows `need` them. All ranks must run it."""

    name: str
    score: Callable[[Sequence[TrainRow]], Scored]
    need: Callable[[TrainRollout], bool] = lambda rollout: True

    def run(self, rollouts: Sequence[TrainRollout]) -> None:
        """Give the rows their numbers."""
        for row, logps in self.score([r for one in rollouts if self.need(one) for r in one.rows]):
            row.logps[self.name] = logps


class Scorer:
    """Computes log-probabilities with models that have TRL's fused head, those of tokens with a
    support among its ids.

    Rows share their prefixes (`forest`) where the model allows it and where it pays; others are
    padded. `max_tokens_per_forward` limits the tokens of a forward pass, of which what a branch
    gathers counts as its share. All ranks must call it at the same time and with the same number of
    passes: FSDP and DeepSpeed communicate in each pass.
    """

    def __init__(
        self, accelerator: Any, ranks: Ranks, pad_token_id: int, args: GRPOEnvConfig
    ) -> None:
        self.accelerator = accelerator
        self.ranks = ranks
        self._pad_token_id = pad_token_id
        self._max_tokens = args.max_tokens_per_forward
        self._temperature = args.temperature
        self._checkpointing = args.gradient_checkpointing
        self._largest, self._halved = self._max_tokens, False
        self._shares: bool | None = None
        self._key = 0.0

    def layouts(self, rows: Iterable[TrainRow], model: nn.Module) -> list[Layout]:
        """Rows with agent tokens in forward passes: at least one, and as many as on the rank with
        most, because other ranks would wait for a rank with fewer. What is added has weight 0."""
        if self._shares is None:
            self._shares = self._can_share(model)
            config = self.accelerator.unwrap_model(model).config.get_text_config()
            item = 4 if self.accelerator.mixed_precision == "no" else 2
            self._key = Activations.of(config, item, checkpointing=self._checkpointing).share
        spoken = [row for row in rows if row.agent_tokens]
        among = [row for row in spoken if len(row.supports)]
        layouts = self._layouts([row for row in among if not row.supports.whole])
        layouts += self._wholes([WholeRow(row) for row in among if row.supports.whole])
        layouts += self._layouts([row for row in spoken if not len(row.supports)])
        count = max([1, *self.ranks.gather([len(layouts)])])
        filler = bare_row(np.full(2, self._pad_token_id, np.int32), ())
        layouts += [self._padded([filler])] * (count - len(layouts))
        self._largest = max(layout.tokens for layout in layouts)
        return layouts

    def halve(self) -> bool:
        """Let passes read half as many tokens from now on as the largest of the last ones, once;
        returns whether they do. Several ranks must agree on the number of passes, so there they do
        not."""
        if self._halved or self.ranks.world_size > 1:
            return False
        self._halved = True
        self._max_tokens = max(1, min(self._max_tokens, self._largest) // 2)
        logger.warning(
            "memory ran out in an update, which is made again: a pass reads at most %d tokens from "
            "now on (max_tokens_per_forward)",
            self._max_tokens,
        )
        return True

    def _wholes(self, rows: Sequence[WholeRow]) -> list[Layout]:
        if rows and not self._shares:
            raise ValueError(
                "actions: whole needs a model that can read several sequences as one (a warning "
                "says why this one cannot)"
            )
        return [WholeRows(part) for part in pack(rows, self._max_tokens)]

    def _layouts(self, rows: Sequence[TrainRow]) -> list[Layout]:
        padded: list[Layout] = [self._padded(part) for part in pack(rows, self._max_tokens)]
        if not self._shares or not rows:
            return padded
        ordered, shared = forest.by_prefix(rows)
        lengths = np.array([row.length for row in ordered])
        trees: list[Layout] = [
            Forest(ordered[part], shared[part])
            for part in forest.cuts(lengths, shared, self._max_tokens, self._key)
        ]
        read, fewer = (sum(layout.size for layout in some) for some in (padded, trees))
        return trees if read >= forest.PAYS_FROM * fewer else padded

    def _padded(self, rows: Sequence[TrainRow]) -> PaddedRows:
        return PaddedRows(rows, self._pad_token_id)

    @contextmanager
    def reading(self, model: nn.Module, layout: Layout) -> Iterator[None]:
        """The context for the passes over a layout, forward and backward: gradient checkpointing
        repeats the forward pass in the backward one."""
        if not isinstance(layout, PaddedRows):
            with packed_attention_on(self.accelerator.unwrap_model(model).config):
                yield
        else:
            yield

    def forward(self, model: nn.Module, layout: Layout) -> Scores:
        """Compute the log-probabilities of a layout's agent tokens in one pass, inside
        `reading`."""
        plain = self.accelerator.unwrap_model(model)
        dtype = torch.float64 if plain.dtype == torch.float64 else torch.float32
        device = self.accelerator.device
        chunk = collate(layout.rows, device, dtype)
        if isinstance(layout, WholeRows):
            return self._among_wholes(model, layout, chunk)
        # The token before an agent token predicts it.
        index = torch.from_numpy(layout.index(chunk.row, chunk.position - 1)).to(device)
        tiles = fused_head_tiles(device, plain.config.get_text_config().vocab_size)
        with self.accelerator.autocast(), tiles, hidden_states_at(plain, index, layout.size):
            if len(chunk.supports):
                return self._among_supports(model, layout, chunk)
            labels = chunk.targets[None]
            output = model(**layout.inputs(device), shift_labels=labels, fused_lm_head=True)
        entropy = None if output.entropy is None else output.entropy[0]
        return Scores(chunk, output.log_probs[0], entropy)

    def _among_supports(self, model: nn.Module, layout: Layout, chunk: Chunk) -> Scores:
        """The scores of a chunk in which tokens were chosen from some ids only, by logits of the
        ids that any of them was chosen from."""
        device = self.accelerator.device
        plain = self.accelerator.unwrap_model(model)
        vocabulary = plain.config.get_text_config().vocab_size
        ids, outside = chunk.columns(vocabulary)
        with head_over(plain, torch.from_numpy(ids).to(device)):
            output = model(**layout.inputs(device), use_cache=False)
        logits = output.logits[0].masked_fill(torch.from_numpy(outside).to(device), -torch.inf)
        labels = np.searchsorted(ids, chunk.targets.cpu().numpy())
        scores = score_labels(logits, torch.from_numpy(labels).to(device), self._temperature)
        return Scores(chunk, *scores)

    def _among_wholes(self, model: nn.Module, layout: WholeRows, chunk: Chunk) -> Scores:
        """The scores of a chunk in which answers were chosen as wholes."""
        device, plain = self.accelerator.device, self.accelerator.unwrap_model(model)
        read = torch.from_numpy(layout.read).to(device)
        picked = hidden_states_at(plain, read, layout.size)
        with self.accelerator.autocast(), picked, head_over(plain):
            output = model(**layout.inputs(device), use_cache=False)
        return Scores(chunk, *layout.scores(output.logits[0], self._temperature))

    @torch.no_grad()
    def read(
        self,
        rows: Iterable[TrainRow],
        places: Callable[[TrainRow], Sequence[int]],
        model: nn.Module,
        *,
        head: bool,
    ) -> Iterator[tuple[TrainRow, torch.Tensor]]:
        """Each row with what the model says at its K `places`, positions: the logits after them,
        float, shape (K, V), or without its `head` the last hidden states, shape (K, `hidden_size`);
        nothing is computed elsewhere. Rows without loss may come in addition."""
        for layout in self.layouts(rows, model):
            at = [places(row) for row in layout.rows]
            counts = [len(own) for own in at]
            row = np.repeat(np.arange(len(at)), counts)
            position = np.array([place for own in at for place in own], np.int64)
            if not len(row):  # all ranks make the pass
                row = position = np.zeros(1, np.int64)
            values = self._read(model, layout, layout.index(row, position), head)
            yield from zip(layout.rows, torch.split(values[: sum(counts)], counts), strict=True)

    def _read(self, model: nn.Module, layout: Layout, index: Ints, head: bool) -> torch.Tensor:
        """Logits or last hidden states at tokens of a layout."""
        plain = self.accelerator.unwrap_model(model)
        device = self.accelerator.device
        with (
            self.accelerator.autocast(),
            hidden_states_at(plain, torch.from_numpy(index).to(device), layout.size) as picked,
            self.reading(model, layout),
        ):
            options = {} if head else {"logits_to_keep": 1}
            output = model(**layout.inputs(device), use_cache=False, **options)
        if not head:
            return picked[0]
        logits: torch.Tensor = output.logits[0]
        return logits if logits.dtype == torch.float64 else logits.float()

    @torch.no_grad()
    def logps_of(
        self, rows: Sequence[TrainRow], model: nn.Module
    ) -> list[tuple[TrainRow, torch.Tensor]]:
        """Each row with the log-probabilities of its tokens with loss, float tensors of shape
        (P,)."""
        results = [(row, torch.zeros(0)) for row in rows if not row.agent_tokens]
        for layout in self.layouts(rows, model):
            with self.reading(model, layout):
                scores = self.forward(model, layout)
            results += zip(layout.rows, scores.chunk.split(scores.logps), strict=True)
        return results

    # -- whether a model can read a forest ------------------------------------------------------

    @torch.no_grad()
    def _can_share(self, model: nn.Module) -> bool:
        """Whether log-probabilities in a forest are those of padded rows: by the types of the
        model's layers, and by one comparison, with narrow windows if it has any."""
        plain = self.accelerator.unwrap_model(model)
        reason = "; ".join(unpackable(plain))
        was_training = model.training
        model.eval()
        try:
            if not reason:
                with narrow_windows(plain, 3):
                    reason = self._difference(model, plain)
        except UnsupportedModelError as error:
            reason = str(error)
        finally:
            model.train(was_training)
        if reason:
            name = type(plain).__name__
            logger.warning("the loss of %s reads common prefixes of rows again: %s", name, reason)
        return not reason

    def _difference(self, model: nn.Module, plain: Any) -> str:
        """What is wrong with log-probabilities in a forest; "" if nothing. Those of a model that is
        whole are compared in float32."""
        vocabulary = plain.config.get_text_config().vocab_size
        rows, shared = forest.by_prefix(list(_branching_rows(vocabulary)))
        mixed = self.accelerator.mixed_precision != "no"
        sharded = self.accelerator.distributed_type in _SHARDED
        widened = mixed and not sharded
        exact = InFloat32(self.accelerator.device.type) if widened else nullcontext()
        try:
            with exact, self.reading(model, tree := Forest(rows, shared)):
                ours = self.forward(model, tree).logps
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            if is_of_device(error):
                raise
            return f"it does not run with packed attention ({error})"
        with exact:
            expected = self.forward(model, self._padded(rows)).logps
        gap = float((ours - expected).abs().max() / (1 + expected.abs().max()))
        if gap > (0.1 if mixed and sharded else tolerance_of(plain)):
            return f"log-probabilities would differ by {gap:.2g} of their size"
        return ""


def _branching_rows(vocabulary: int) -> Iterator[TrainRow]:
    """Three rows of different lengths that share four tokens, and the beginning of one."""
    for seed, length in ((1, 9), (2, 6), (3, 12), (3, 7)):
        ids = np.arange(1, length + 1) * 7919 * np.where(np.arange(length) < 4, 1, seed)
        yield bare_row((ids % vocabulary).astype(np.int32), (StepSpan(0, 0, 1, length),))
