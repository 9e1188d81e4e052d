"""An engine without a model: what it samples is noise of a request's seed and position alone."""

import random
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.types import EngineStats, GenerationRequest, GenerationResult

HELD = "Wait for: "
"""A request whose last message begins so is answered when that is released."""


@dataclass(frozen=True)
class Sampled:
    """An answer: the context that the engine was given, the last message in it, and the ids."""

    context: tuple[int, ...]
    asked: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


def noise(tokenizer: Any, seed: int, before: int, most: int) -> tuple[list[int], list[float]]:
    """The answer after `before` sampled tokens: any bytes, mostly with an end of turn."""
    rng = random.Random(f"{seed} {before}")
    added = {*tokenizer.get_added_vocab().values(), *tokenizer.all_special_ids}
    plain = [token for token in range(len(tokenizer)) if token not in added]
    letters = tokenizer.encode("abcxyz .", add_special_tokens=False)
    source = letters if rng.random() < 0.7 else plain
    ids = [rng.choice(source) for _ in range(rng.randint(1, most))]
    if len(ids) < most or rng.random() < 0.5:
        ids[-1] = tokenizer.eos_token_id
    return ids, [-rng.random() for _ in ids]


class NoiseEngine:
    """Answers at once, but for requests that are held; `sampled` has all answers by session."""

    capacity = 64
    stats = EngineStats()

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.sampled: dict[str, list[Sampled]] = defaultdict(list)
        self.arrived: dict[str, threading.Event] = defaultdict(threading.Event)
        self._released: set[str] = set()
        self._changed = threading.Condition()
        self._open: dict[str, GenerationRequest] = {}

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        with self._changed:
            for request in requests:
                assert request.session_id not in self._open
                self._open[request.session_id] = request
                self.arrived[_asked(request)].set()

    def poll(self) -> list[GenerationResult]:
        with self._changed:
            while self._open and not (ready := [r for r in self._open.values() if self._may(r)]):
                self._changed.wait()
            return [self._answer(request) for request in ready] if self._open else []

    def release(self, session_ids: Sequence[str]) -> None:
        with self._changed:
            for session_id in session_ids:
                self._open.pop(session_id, None)

    def let_go(self, what: str) -> None:
        """Answer the request that is held for this."""
        with self._changed:
            self._released.add(what)
            self._changed.notify_all()

    def _may(self, request: GenerationRequest) -> bool:
        asked = _asked(request)
        return not asked.startswith(HELD) or asked in self._released

    def _answer(self, request: GenerationRequest) -> GenerationResult:
        del self._open[request.session_id]
        most = request.sampling.max_tokens
        ids, logprobs = noise(self.tokenizer, request.seed, request.sampled_before, most)
        sampled = Sampled(tuple(request.token_ids), _asked(request), tuple(ids), tuple(logprobs))
        self.sampled[request.session_id].append(sampled)
        ended = ids[-1] == self.tokenizer.eos_token_id
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return GenerationResult(
            request.session_id, sampled.ids, sampled.logprobs, text, "stop" if ended else "length"
        )


def _asked(request: GenerationRequest) -> str:
    return request.messages[-1]["content"]
