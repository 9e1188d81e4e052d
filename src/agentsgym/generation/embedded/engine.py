"""The embedded engine: batched, cached sampling in multi-turn sessions from a Hugging Face model in
this process. Sessions keep their keys and values between their turns, so a turn only reads new
tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import compress
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agentsgym.generation.embedded.attention import TreeGroup, packed_attention_on
from agentsgym.generation.embedded.batch import (
    RowTable,
    Sampled,
    noise_of,
    sample_tokens,
    truncates,
)
from agentsgym.generation.embedded.compatibility import check_exact, check_supported
from agentsgym.generation.embedded.forward import PassCache, head_over, plan_pass, run_pass
from agentsgym.generation.embedded.graphs import Graphs
from agentsgym.generation.embedded.in_process import InProcessEngine
from agentsgym.generation.embedded.kv_cache import CacheManager, KVMemory
from agentsgym.generation.sampling import sample
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.types import GenerationRequest
from agentsgym.types.choices import Answers, Choices, Trie, trie_of
from agentsgym.types.requests import context_overflow
from agentsgym.types.rows import Ints
from agentsgym.types.supports import Ids, Supports, is_wide


class EmbeddedEngine(InProcessEngine):
    """An `agentsgym.types.TrainableEngine` over `model` (a causal language model) and `tokenizer`.

    `capacity` is the number of sequences sampled at once. More sessions may be open: they wait for
    a row, and the caches of idle sessions make room for them, least recently used first.
    `cache_gib` is the most that keys and values take (None: most of the memory that is free when
    the first session comes): a request waits until its longest answer fits.
    `max_prefill_tokens` limits the context tokens that one forward pass reads.

    While it samples, the engine changes the model's attention and mode, so no other thread may run
    the same model at that moment; give each thread its own copy. `poll` raises RuntimeError if a
    second engine tries to.

    Raises UnsupportedModelError for a model whose caches or positions it cannot handle exactly.
    """

    max_prefill_tokens = 2048
    chooses_whole = True  # among whole answers

    def __init__(
        self, model: Any, tokenizer: Any, *, cache_gib: float | None = None, **options: Any
    ) -> None:
        self._cache_gib = cache_gib
        super().__init__(model, tokenizer, **options)

    @classmethod
    def from_settings(cls, settings: EngineSettings, parts: EngineParts, **options: Any) -> Self:
        """Called by the factory. Raises ValueError for a model that is sharded over processes."""
        return super().from_settings(settings, parts, cache_gib=settings.cache_gib, **options)

    def _check(self, model: Any) -> None:
        check_supported(model)

    def _prepare(self) -> None:
        layers = self.model.config.get_text_config().num_hidden_layers
        token_bytes = check_exact(self.model, layers, self._vocabulary, self.device)
        self._caches = CacheManager(
            layers, self.capacity, self._totals, token_bytes, self._cache_gib
        )
        self._table = self._caches.table
        self._graphs = Graphs(self.model)

    def _attending(self) -> AbstractContextManager[None]:
        return packed_attention_on(self.model.config)

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Queue requests; an impossible one comes back as an error result from the next `poll`.

        Raises ValueError, and queues none, if a session already has a request open.
        """
        if not self._requests and not self._caches.sessions:
            self._caches.settle(self.device)
        super().submit(requests)

    def _problem(self, context: Ints, max_tokens: int) -> str | None:
        problem = super()._problem(context, max_tokens)
        return problem or self._caches.too_long(self._bounded(len(context) + max_tokens))

    def _unsampled(self, request: GenerationRequest, choices: Answers) -> str | None:
        if not isinstance(choices, Choices) or not choices.whole:
            return None
        if request.sampling.truncates:
            return "top_p and top_k cut no whole answers; leave them off"
        context = len(request.token_ids)
        if self._positions is not None and context + choices.longest > self._positions:
            return context_overflow(context, self._positions)
        return self._caches.too_long(context + slots(choices))

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results. Without any session, memory is freed; on a GPU
        some stays, and so do the graphs that read it."""
        super().release(session_ids)
        for session_id in session_ids:
            self._caches.forget(session_id)
        if not self._requests and not self._caches.sessions:
            self.reset()

    def reset(self) -> None:
        """Drop all caches. Open requests continue: their sampled tokens are kept and read again."""
        self._caches.clear(self.device, self._graphs.size)
        if self._caches.memory.planes:
            self._graphs.look_again()
        else:
            self._graphs.clear()

    def close(self) -> None:
        """Drop all requests, caches and graphs."""
        super().close()
        self._drop()

    def _drop(self) -> None:
        self._caches.clear()
        self._graphs.clear()

    def _admit(self) -> None:
        """Give waiting requests a row, in the order of arrival, as long as there is room."""
        waiting = self._waiting
        while waiting:
            session_id = waiting[0]
            request, context = self._requests[session_id], self._contexts[session_id]
            length = self._longest(session_id)
            walk = self._walks.get(session_id)
            if walk is None and isinstance(request.choices, Choices):
                length = len(context) + slots(request.choices)
            row = self._caches.acquire(session_id, length, len(waiting))
            if row is None:
                return
            waiting.popleft()
            self._caches.begin(row, request, context, length)
            complete = self._force(row)
            if walk is not None and walk.error:
                self._fail(session_id, walk.error)
            elif complete or self._table.known[row] >= length:
                self._finish(session_id, "stop" if complete else "length")

    def _forward(self) -> None:
        try:
            self._pass()
        except BaseException:  # the memory may be out, and some planes may be larger than others
            self._drop()
            raise

    def _pass(self) -> None:
        """Begin what there is room for; one forward pass over all active rows, and a token for each
        that has read everything."""
        self._admit()
        table, memory = self._table, self._caches.memory
        if not table.active.any():  # what began was complete at once
            return
        plan = plan_pass(table, memory, self.max_prefill_tokens)
        in_context = (table.context[plan.rows] - plan.starts).clip(0, plan.chunks)
        self._count_pass(len(plan.rows), int(in_context.sum()))
        saved = plan.copies[:, 2] - table.cached[plan.copies[:, 1]]
        self._totals["shared_prefix_tokens"] += int(saved.sum())
        rows = plan.rows[plan.finished]
        allowed = self._allowed(rows)
        whole = self._whole(rows)
        samples = not (allowed or whole.any() or truncates(table, rows).any())
        given = self._graphs.run(table, memory, plan, samples=samples)
        if given is None:
            columns = _columns(allowed)
            ids = None if columns is None else torch.from_numpy(columns)
            with nullcontext() if samples else head_over(self.model, ids):
                given = run_pass(self.model, memory, table, plan, self.device)
            if columns is not None:
                return self._append(rows, sample_tokens(table, rows, given, allowed, columns))
        if len(rows):
            if isinstance(given, Sampled):
                return self._append(rows, given)
            if whole.any():
                self._choose(rows[whole], given[torch.from_numpy(whole).to(given.device)])
                rows, allowed = rows[~whole], list(compress(allowed, ~whole))
                given = given[torch.from_numpy(~whole).to(given.device)]
            if len(rows):
                self._append(rows, sample_tokens(table, rows, given, allowed))

    def _whole(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """Which of `rows` [n] choose their answer as a whole."""
        names = [self._table.sessions[row] or "" for row in rows.tolist()]
        requests = [self._requests[name].choices for name in names]
        return np.array([one is not None and one.whole for one in requests], np.bool_)

    def _choose(self, rows: Ints, logits: torch.Tensor) -> None:
        """Answer each of `rows` [n] with one of its choices, by the logits [n, vocab] after its
        context; close those whose logits are not finite with an error."""
        table, memory = self._table, self._caches.memory
        names = [table.sessions[row] or "" for row in rows.tolist()]
        requests = [self._requests[name] for name in names]
        choices = [one.choices for one in requests if isinstance(one.choices, Choices)]
        tries = [trie_of(own) for own in choices]
        scores = score_answers(self.model, memory, table, rows, tries, logits)
        noise = torch.from_numpy(noise_of(table, rows))
        greedy = torch.from_numpy(table.temperature[rows] == 0)
        for k, (row, request, own) in enumerate(zip(rows.tolist(), requests, choices, strict=True)):
            memory.keep(row, int(table.known[row]))
            if not np.isfinite(scores[k]).all():
                self._fail(names[k], "the model's logits are not finite")
                continue
            heat = torch.where(greedy[k : k + 1], 0.0, 1.0)  # the scores have it already
            logps = torch.from_numpy(scores[k])[None]
            number, logprob, _ = sample(logps, noise[k : k + 1], heat)
            ids = tuple(token for token in own.table[int(number)].tolist() if token >= 0)
            forced = ((place, [token]) for place, token in enumerate(ids) if place)
            supports = Supports.of([(0, own.support), *forced])
            self._close(names[k])
            self._totals["sampled"] += 1
            logprobs = float(logprob), *(0.0,) * (len(ids) - 1)
            self._answer(request, ids, logprobs, supports, "stop")

    def _fail(self, session_id: str, reason: str) -> None:
        """Close a request with an error. Its keys and values may be NaN, which must not be left to
        another session: masks do not stop it."""
        super()._fail(session_id, reason)
        self._caches.forget(session_id, wipes=True)


def _columns(allowed: Sequence[Ids | None]) -> Ids | None:
    """The ids that some row may sample, ascending, if each may sample few only."""
    some = [ids for ids in allowed if ids is not None and not is_wide(ids)]
    return np.unique(np.concatenate(some)) if some and len(some) == len(allowed) else None


# -- allowed answers -------------------------------------------------------------------------------


Floats = npt.NDArray[np.float64]

MOST_READ = 512
"""Beginnings that a pass reads, each of which gives logits."""


class _Part(NamedTuple):
    """Beginnings of the answers of one of some rows, by its number: `nodes` that a pass reads, of
    which the first `known` were scored already, and others go on from them."""

    number: int
    nodes: Ints
    known: int


def slots(choices: Choices) -> int:
    """The tokens beside the context that a row holds while the answers are scored."""
    return min(len(trie_of(choices).inner), MOST_READ) + choices.longest


def score_answers(
    model: Any, memory: KVMemory, table: RowTable, rows: Ints, tries: Sequence[Trie], logits: Tensor
) -> list[Floats]:
    """For each of `rows` [n] the Σ log p (nats) of its answers, whose beginnings are `tries`, at
    the row's temperature. `logits` [n, vocab] are those after the contexts, which are cached."""
    scores = [np.zeros(len(trie.tokens)) for trie in tries]
    heat = [float(table.temperature[row]) or 1.0 for row in rows]
    for k, trie in enumerate(tries):
        _score(scores[k], trie, np.array([-1]), logits[k : k + 1] / heat[k])
    for parts in _passes(tries):
        read = _read(model, memory, table, rows, tries, parts, logits.device)
        for (k, nodes, known), own in zip(parts, read, strict=True):
            _score(scores[k], tries[k], nodes[known:], own[known:] / heat[k])
    return [trie.totals(own) for trie, own in zip(tries, scores, strict=True)]


def _score(scores: Floats, trie: Trie, nodes: Ints, logits: Tensor) -> None:
    """Score what goes on from each of some beginnings by the logits after it."""
    after = np.flatnonzero(np.isin(trie.parents, nodes))
    at = torch.from_numpy(np.searchsorted(nodes, trie.parents[after])).to(logits.device)
    tokens = torch.from_numpy(trie.tokens[after]).to(logits.device)
    scores[after] = (logits[at, tokens] - logits.logsumexp(-1)[at]).cpu().numpy()


def _passes(tries: Sequence[Trie]) -> Iterator[list[_Part]]:
    """All beginnings that others go on from, in passes."""
    parts: list[_Part] = []
    for k, trie in enumerate(tries):
        for first in range(0, len(trie.inner), MOST_READ):
            nodes = trie.inner[first : first + MOST_READ]
            above, parent = [], int(trie.parents[nodes[0]])
            while parent >= 0:
                above.append(parent)
                parent = int(trie.parents[parent])
            nodes = np.array([*above[::-1], *nodes], np.int64)
            if parts and sum(len(part.nodes) for part in parts) + len(nodes) > MOST_READ:
                yield parts
                parts = []
            parts.append(_Part(k, nodes, len(above)))
    if parts:
        yield parts


def _read(
    model: Any,
    memory: KVMemory,
    table: RowTable,
    rows: Ints,
    tries: Sequence[Trie],
    parts: Sequence[_Part],
    device: torch.device,
) -> tuple[Tensor, ...]:
    """The float32 logits after the nodes of each part."""
    inputs, groups, first = [], [], 0
    own_rows, sizes = rows[[part.number for part in parts]], [len(part.nodes) for part in parts]
    memory.fit(own_rows, table.known[own_rows] + sizes)
    for k, nodes, _ in parts:
        row, context, trie = rows[k], int(table.known[rows[k]]), tries[k]
        total = context + len(nodes)
        depths = np.concatenate((np.arange(context), context + trie.depths[nodes]))
        at = memory.address(np.full(total, row), np.arange(total))
        seen = np.concatenate((np.ones((len(nodes), context), np.bool_), trie.seen_by(nodes)), 1)
        groups.append(TreeGroup(*at, seen, depths, first, device))
        own = (column[context:] for column in (depths, *at))
        inputs.append(np.stack((trie.tokens[nodes], *own)))
        first += len(nodes)
    ids, positions, blocks, places = torch.from_numpy(np.concatenate(inputs, 1)).to(device)
    with head_over(model):
        output = model(
            input_ids=ids[None],
            position_ids=positions[None],
            past_key_values=PassCache(memory, blocks, places),
            use_cache=True,
            packed_groups=groups,
        )
    return torch.split(output.logits[0].float(), sizes)
