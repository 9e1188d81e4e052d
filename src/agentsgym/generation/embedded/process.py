"""An embedded engine in a process of its own, with a copy of the weights, so that it samples while
this process trains.

The invariant: every action is sampled by one version of the weights, which its result names.
"""

import contextlib
import itertools
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from agentsgym.child_process import bare_environment, start_python
from agentsgym.generation.embedded.shared_weights import ModelParts, SharedMemory, bytes_of
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.types import EngineStats, GenerationRequest, GenerationResult, WeightUpdate
from agentsgym.types.text import cut

logger = logging.getLogger(__name__)

START_SECONDS = 300.0
"""Seconds for the process to start: its imports are slow if many start at once."""
STOP_SECONDS = 5.0
_LONGEST = 2000


class EngineProcessLost(RuntimeError):
    """The process of an engine did not start, or has ended; the message says how."""


class ProcessEngine:
    """An `agentsgym.types.TrainableEngine`: an `EmbeddedEngine` over a copy of `model` in another
    process (a `PlainEngine` for a model that it does not support).

    The copy is on the device that `model` is on now, in `dtype` where that has fewer bits. The
    weights go through memory that both processes share. The process ends with this one; if it ends
    before, the next call raises EngineProcessLost. `submit`, `poll`, `cancel` and `release` belong
    to one thread, `update_weights` may be called by another.

    Raises CannotSend for a model that cannot be sent, and EngineProcessLost.
    """

    can_generate_ahead = True
    can_update_while_sampling = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        capacity: int = 64,
        stop_token_ids: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.capacity = capacity
        self.policy_version = 0
        self._trained = model
        self._parts = ModelParts(model, dtype)
        memory = SharedMemory(bytes_of(self._parts.specs))
        self._views = memory.views(self._parts.specs)
        self._parts.write(self._views)
        self._open: dict[str, int] = {}
        self._numbers = itertools.count()
        self._closed = False
        self._process, end = _started(memory.fileno)
        # Not by this object's thread: an engine that nobody uses any more shall end its process.
        self._end = weakref.finalize(self, _kill, self._process)
        self._line = _Line(end)
        options = {"capacity": capacity, "stop_token_ids": stop_token_ids}
        device = str(next(model.parameters()).device)
        self._send((sys.path, torch.get_num_threads()))
        self._send((self._parts.structure, self._parts.specs, device, tokenizer, options))
        self._await_ready()

    @classmethod
    def from_settings(cls, settings: EngineSettings, parts: EngineParts) -> "ProcessEngine":
        """Called by the factory. Raises ValueError for a model that is sharded over processes."""
        return cls(
            parts.whole_model(cls.__name__),
            parts.tokenizer(),
            stop_token_ids=parts.stop_token_ids,
            dtype=parts.dtype,
            **settings.capacity_option,
        )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def stats(self) -> EngineStats:
        """The totals of the process's engine, as of its last results."""
        return self._line.stats

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Send requests. Raises ValueError, and sends none, if a session already has one open."""
        names = [request.session_id for request in requests]
        for index, name in enumerate(names):
            if name in self._open or name in names[:index]:
                raise ValueError(f"session {name!r} already has a request open")
        # The context is a live view of the caller's data; the messages are not read.
        fixed = [
            (next(self._numbers), replace(r, token_ids=tuple(r.token_ids), messages=()))
            for r in requests
        ]
        self._open |= {request.session_id: number for number, request in fixed}
        self._send(("submit", fixed))

    def poll(self) -> list[GenerationResult]:
        """The results that are ready; at least one if any request is open."""
        ready: list[GenerationResult] = []
        while (self._open and not ready) or not self._line.results.empty():
            results = self._line.results.get()
            if results is None:
                self._line.results.put(None)  # for the next call
                if ready:
                    break
                raise self._lost()
            for number, result in results:
                if self._open.get(result.session_id) == number:
                    del self._open[result.session_id]
                    ready.append(result)
        return ready

    def cancel(self, session_ids: Sequence[str]) -> None:
        """End open requests; each result has the tokens so far and the reason "cancelled"."""
        self._send(("cancel", list(session_ids)))

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        for session_id in session_ids:
            self._open.pop(session_id, None)
        if not self._line.ended:
            self._send(("release", list(session_ids)))

    def update_weights(self, update: WeightUpdate) -> None:
        """Let the process take the current weights when its open actions are finished; later
        requests wait for that. Returns when the weights are in the shared memory, which may have to
        wait for the process to have taken the ones before.

        Raises ValueError if they are not this engine's, and EngineProcessLost.
        """
        first = next(self._trained.parameters())
        if all(parameter is not first for parameter in update.model.parameters()):
            raise ValueError(
                f"{type(self).__name__} samples from another model than the one that is trained; "
                "hand the trainer an engine over the same model, or none"
            )
        if update.changed:
            self._line.taken.wait()
            self._parts.write(self._views)
            self._line.taken.clear()
            try:
                self._send(("weights", update.version))
            except EngineProcessLost:
                self._line.taken.set()  # nobody else will, and the next call must not wait
                raise
        self.policy_version = update.version

    def finish(self) -> None:
        """Each rank's rollouts end on their own."""

    def close(self) -> None:
        """End the process."""
        self._closed = True
        self._end()

    def _send(self, message: tuple[Any, ...]) -> None:
        try:
            self._line.send(message)
        except OSError as error:
            raise self._lost() from error

    def _await_ready(self) -> None:
        try:
            kind = self._line.ready.get(timeout=START_SECONDS)
        except queue.Empty:
            self.close()
            raise EngineProcessLost(
                f"the engine's process gave no answer within {START_SECONDS:g} seconds"
            ) from None
        if kind is None:
            raise self._lost()
        if kind != "EmbeddedEngine":
            logger.warning("%s samples, which is slower (docs/engines.md)", kind)

    def _lost(self) -> EngineProcessLost:
        """How the process ended, in a sentence."""
        if self._closed:
            return EngineProcessLost("the engine is closed")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        last = self._line.error.strip().rpartition("\n")[2]
        why = f": {cut(last, _LONGEST)}" if last else f" (exit status {self._process.returncode})"
        return EngineProcessLost(f"the engine's process ended{why}")


class _Line:
    """The connection with the process. A thread receives; `None` in `results` and `ready` is the
    end of the process."""

    def __init__(self, end: Connection) -> None:
        self._end = end
        self._sending = threading.Lock()
        self.ready: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[list[tuple[int, GenerationResult]] | None] = (
            queue.SimpleQueue()
        )
        self.stats = EngineStats()
        self.taken = threading.Event()
        self.taken.set()
        self.error = ""
        self.ended = False
        threading.Thread(target=self._listen, name="agentsgym-engine", daemon=True).start()

    def send(self, message: tuple[Any, ...]) -> None:
        """Send a message. Raises OSError if the process has ended."""
        with self._sending:
            self._end.send(message)

    def _listen(self) -> None:
        try:
            while True:
                self._note(*self._end.recv())
        except (EOFError, OSError):
            self.ended = True
            self.ready.put(None)
            self.results.put(None)
            self.taken.set()

    def _note(self, kind: str, value: Any, stats: EngineStats | None = None) -> None:
        self.stats = stats or self.stats
        if kind == "results":
            self.results.put(value)
        elif kind == "taken":
            self.taken.set()
        elif kind == "ready":
            self.ready.put(value)
        else:
            self.error = value


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)


def _started(memory: int) -> tuple["subprocess.Popen[bytes]", Connection]:
    """The process, which never runs the main script of this one, and our end of the line."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = start_python(
            "agentsgym.generation.embedded.child",
            str(theirs.fileno()),
            str(memory),
            env={**os.environ, "PYTHONPATH": bare_environment()["PYTHONPATH"]},
            pass_fds=(theirs.fileno(), memory),
            stdin=subprocess.DEVNULL,
            stdout=2,
            process_group=0,  # Ctrl-C at the terminal must only reach this process
        )
    return process, Connection(ours.detach())
