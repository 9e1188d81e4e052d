"""TRL's own vLLM modes (`use_vllm=True`, colocate or server) behind our engine protocol.

TRL's `VLLMGeneration.generate` is collective: in server mode all ranks gather their prompts, with
tensor parallelism the ranks of a group do, and each rank must send the same number of prompts,
because the answers are split into equal slices. Rollouts end at different turns, so the invariant
here is: every rank makes the same number of `generate` calls with the same number of prompts. A
rank without work sends filler prompts until all ranks are done.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.generation.embedded.requests import ends_with_stop
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.generation.vllm.protocol import refusal
from agentsgym.tokens import ActionText
from agentsgym.types import (
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SamplingParams,
    WeightUpdate,
)
from agentsgym.types.protocols import Gather


@dataclass(frozen=True, slots=True)
class _Round:
    """One rank's part of a collective call: its number of prompts and their length."""

    prompts: int
    max_tokens: int


class TRLVLLMEngine:
    """An `agentsgym.types.TrainableEngine` over TRL's `VLLMGeneration`, in step on all ranks.

    Each `poll` is one collective round that samples all open requests of all ranks. A rank whose
    rollouts are over must call `finish`, which takes part in rounds until no rank has work left.

    TRL has one set of sampling parameters for all prompts of a call and no seed per prompt: all
    requests must have the same sampling settings, and the noise does not belong to the session.
    Actions are cut to their own cap and stop strings here.

    Args:
        generation: TRL's `VLLMGeneration` (`trainer.vllm_generation`).
        tokenizer: to decode actions; its end of sequence marks complete ones.
        gather: joins lists of all ranks.
        capacity: sessions that a scheduler keeps open on this rank.
        stop_token_ids: ids that end an action (None: the tokenizer's end of sequence).
    """

    def __init__(
        self,
        generation: Any,
        tokenizer: Any,
        gather: Gather = lambda values: values,
        *,
        capacity: int = 256,
        stop_token_ids: Sequence[int] | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.tokenizer = tokenizer
        self.capacity = capacity
        self.policy_version = 0
        self._generation = generation
        self._gather = gather
        stops = (tokenizer.eos_token_id,) if stop_token_ids is None else stop_token_ids
        self._stop_ids = frozenset(stops)
        self._action_text = ActionText(tokenizer, self._stop_ids)
        self._filler = [tokenizer.eos_token_id]
        self._waiting: deque[GenerationRequest] = deque()
        self._ready: list[GenerationResult] = []
        self._rounds = self._sampled = self._read = self._fillers = self._answered = 0

    @classmethod
    def from_settings(cls, settings: EngineSettings, parts: EngineParts) -> "TRLVLLMEngine":
        """Called by the factory."""
        return cls(
            parts.vllm_generation,
            parts.tokenizer(),
            parts.gather,
            stop_token_ids=parts.stop_token_ids,
            **settings.capacity,
        )

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Queue requests for the next round. Raises ValueError if a session has one open."""
        names = {request.session_id for request in self._waiting}
        for request in requests:
            if request.session_id in names:
                raise ValueError(f"session {request.session_id!r} already has a request open")
            names.add(request.session_id)
        for request in requests:
            problem = refusal(request)
            if problem is None:
                self._waiting.append(request)
            else:
                text = f"session {request.session_id!r}: {problem}"
                self._ready.append(
                    GenerationResult(request.session_id, finish_reason="error", error=text)
                )

    def poll(self) -> list[GenerationResult]:
        """One round for all open requests; also returns earlier results. Collective."""
        if self._waiting:
            self._round()
        results, self._ready = self._ready, []
        return results

    def finish(self) -> None:
        """Take part in the other ranks' rounds until none has work left. Collective.

        Raises RuntimeError while requests are open here.
        """
        if self._waiting:
            raise RuntimeError(f"{len(self._waiting)} requests are still open on this rank")
        while self._round():
            pass

    def cancel(self, session_ids: Sequence[str]) -> None:
        """Withdraw requests; each comes back as "cancelled", without tokens."""
        for request in self._drop(session_ids):
            self._ready.append(GenerationResult(request.session_id, finish_reason="cancelled"))

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        self._drop(session_ids)
        gone = set(session_ids)
        self._ready = [result for result in self._ready if result.session_id not in gone]

    can_generate_ahead = False

    def update_weights(self, update: WeightUpdate) -> None:
        """Let TRL send the trained weights to vLLM. Collective."""
        self._generation.sync_weights()
        self.policy_version = update.version

    def close(self) -> None:
        """Nothing to do: vLLM belongs to TRL."""

    @property
    def stats(self) -> EngineStats:
        """Totals on this rank. `occupancy` is the share of prompts that were not fillers;
        `read_tokens` counts whole contexts, most of which vLLM's prefix cache saves."""
        prompts = max(1, self._fillers + self._answered)
        return EngineStats(
            forward_passes=self._rounds,
            sampled_tokens=self._sampled,
            read_tokens=self._read,
            occupancy=1.0 - self._fillers / prompts,
            extra={"fillers": float(self._fillers)},
        )

    def _round(self) -> bool:
        """One collective call; False, without a call, if no rank has anything to sample."""
        own = list(self._waiting)
        longest = max((request.sampling.max_tokens for request in own), default=0)
        everyone = self._gather([_Round(len(own), longest)])
        most = max(each.prompts for each in everyone)
        if most == 0:
            return False
        alike = self._common_sampling(own)
        self._waiting.clear()
        prompts = [list(request.token_ids) for request in own]
        prompts += [self._filler] * (most - len(own))
        ids, logprobs = self._generate(prompts, alike, max(each.max_tokens for each in everyone))
        for request, sampled, values in zip(own, ids, logprobs, strict=False):
            self._ready.append(self._result(request, sampled, values))
        self._rounds += 1
        self._answered += len(own)
        self._fillers += most - len(own)
        return True

    def _common_sampling(self, own: Sequence[GenerationRequest]) -> SamplingParams:
        """The sampling settings of all ranks' requests, which must be equal for TRL.

        Raises ValueError on every rank if they differ, so that no rank waits forever.
        """
        found = {_shared(request.sampling) for request in own}
        everywhere: set[SamplingParams] = set(self._gather(sorted(found, key=repr)))
        if len(everywhere) > 1:
            raise ValueError(f"TRL's vLLM samples all requests alike, got {len(everywhere)} kinds")
        return everywhere.pop()

    def _generate(
        self, prompts: list[list[int]], sampling: SamplingParams, max_tokens: int
    ) -> tuple[list[list[int]], list[list[float | None]]]:
        generation = self._generation
        generation.temperature = sampling.temperature
        generation.max_completion_length = max_tokens
        _, ids, logprobs, _ = generation.generate(prompts=prompts, images=None, num_generations=1)
        if logprobs is None:
            raise RuntimeError("TRL's vLLM gave no log-probabilities; its `logprobs` must be 0")
        return ids, [[values[0] for values in row] for row in logprobs]

    def _result(
        self,
        request: GenerationRequest,
        sampled: Sequence[int],
        logprobs: Sequence[float | None],
    ) -> GenerationResult:
        length, reason = self._cut(request.sampling, list(sampled))
        ids = tuple(sampled[:length])
        if None in logprobs[:length]:
            error = f"session {request.session_id!r}: a log-probability is not a number"
            return GenerationResult(request.session_id, finish_reason="error", error=error)
        self._sampled += length
        self._read += len(request.token_ids)
        return GenerationResult(
            request.session_id,
            token_ids=ids,
            logprobs=tuple(value for value in logprobs[:length] if value is not None),
            text=self._action_text(ids),
            finish_reason=reason,
            policy_version=self.policy_version,
        )

    def _cut(self, sampling: SamplingParams, sampled: list[int]) -> tuple[int, FinishReason]:
        """The end of the action by its own cap, end-of-turn ids and stop strings, and the reason.

        Cutting the sampled tokens from left to right is exact: sampling fewer gives the same.
        """
        for length in range(1, min(len(sampled), sampling.max_tokens) + 1):
            if sampled[length - 1] in self._stop_ids:
                return length, "stop"
            if sampling.stop and ends_with_stop(self.tokenizer, sampled[:length], sampling.stop):
                return length, "stop"
        return min(len(sampled), sampling.max_tokens), "length"

    def _drop(self, session_ids: Sequence[str]) -> list[GenerationRequest]:
        gone = [request for request in self._waiting if request.session_id in set(session_ids)]
        for request in gone:
            self._waiting.remove(request)
        return gone


def _shared(sampling: SamplingParams) -> SamplingParams:
    """The settings that must be equal for all; caps and stop strings are applied per action."""
    return SamplingParams(temperature=sampling.temperature)
