"""An embedded engine in a process of its own, with a copy of the weights, so that it samples while
this process trains.

Both sides stand here. They are processes of one program, which trust each other: messages are
pickles, in bytes of our own, because multiprocessing would put tensors into /dev/shm, which
containers limit to a few megabytes.
"""

import contextlib
import itertools
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from agentsgym.child_process import bare_environment, start_python
from agentsgym.generation.embedded.in_process import check_trained
from agentsgym.generation.embedded.precision import ModelCopy
from agentsgym.generation.factory import make_trainable
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.types import EngineStats, GenerationRequest, GenerationResult, WeightUpdate
from agentsgym.types.protocols import check_submitted

START_SECONDS = 300.0
"""Seconds for the process to start: its imports are slow if many start at once."""
STOP_SECONDS = 5.0


class EngineProcessLost(RuntimeError):
    """The process of an engine did not start, or has ended; the message says how."""


class ProcessEngine:
    """An `agentsgym.types.TrainableEngine`: an `EmbeddedEngine` over a copy of `model` in another
    process (a `PlainEngine` for a model that it does not support).

    The copy is on the device that `model` is on now, in `dtype` where that is lower precision. The
    process ends with this one; if it ends before, the next call raises EngineProcessLost.

    Raises ValueError for a model that cannot be pickled, and EngineProcessLost.
    """

    can_generate_ahead = True
    stats = EngineStats()
    """The totals of the process's engine, as of its last results."""

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
        self._copy = ModelCopy(model, dtype)
        self._open: dict[str, int] = {}
        self._numbers = itertools.count()
        self._sending = threading.Lock()
        try:
            setup = pickle.dumps(
                (torch.get_num_threads(), self._copy.model, tokenizer, capacity, stop_token_ids)
            )
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(f"the model cannot be sent to another process: {error}") from error
        self._process, self._connection = _started()
        self._end = weakref.finalize(self, _kill, self._process)
        try:
            self._connection.send_bytes(setup)
            if not self._connection.poll(START_SECONDS):
                self.close()
            self._connection.recv_bytes()
        except (OSError, EOFError) as error:
            raise self._lost() from error

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

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Send requests. Raises ValueError, and sends none, if a session already has one open."""
        check_submitted(requests, self._open)
        numbered = []
        for request in requests:
            # The context is a live view of the caller's data; the messages are not read.
            fixed = replace(request, token_ids=tuple(request.token_ids), messages=())
            numbered.append((next(self._numbers), fixed))
        self._open |= {request.session_id: number for number, request in numbered}
        self._send("submit", numbered)

    def poll(self) -> list[GenerationResult]:
        """The results that are ready; at least one if any request is open."""
        ready: list[GenerationResult] = []
        try:
            while (self._open and not ready) or self._connection.poll():
                data = self._connection.recv_bytes()
                numbered, self.stats = pickle.loads(data)  # noqa: S301 - ours
                for number, result in numbered:
                    if self._open.get(result.session_id) == number:
                        del self._open[result.session_id]
                        ready.append(result)
        except (OSError, EOFError) as error:
            raise self._lost() from error
        return ready

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        for session_id in session_ids:
            self._open.pop(session_id, None)
        with contextlib.suppress(EngineProcessLost):
            self._send("release", session_ids)

    def update_weights(self, update: WeightUpdate) -> None:
        """Send the current weights; the process answers what it has before it takes them. Raises
        ValueError if they are not this engine's, and EngineProcessLost."""
        check_trained(self, self._trained, update.model)
        if update.changed:
            self._copy.refresh()
            self._send("weights", (update.version, _tensors(self._copy.model)))
        self.policy_version = update.version

    def close(self) -> None:
        """End the process."""
        self._end()

    def _send(self, kind: str, value: Any) -> None:
        data = pickle.dumps((kind, value))
        try:
            with self._sending:
                self._connection.send_bytes(data)
        except OSError as error:
            raise self._lost() from error

    def _lost(self) -> EngineProcessLost:
        """How the process ended, in a sentence."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        status = self._process.returncode
        return EngineProcessLost(f"the engine's process ended (exit status {status})")


def _tensors(model: Any) -> list[torch.Tensor]:
    return [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)


def _started() -> tuple["subprocess.Popen[bytes]", Connection]:
    """The process, which never runs the main script of this one, and our end of the connection."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = start_python(
            __name__,
            str(theirs.fileno()),
            env={**os.environ, "PYTHONPATH": bare_environment()["PYTHONPATH"]},
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=2,
            process_group=0,  # Ctrl-C at the terminal must only reach this process
        )
    return process, Connection(ours.detach())


# -- in the other process -------------------------------------------------------------------------


def serve(connection: Connection) -> None:
    """Make an engine and let it sample what comes, until the process is killed."""
    threads, model, tokenizer, capacity, stops = pickle.loads(connection.recv_bytes())  # noqa: S301
    torch.set_num_threads(threads)
    parts = EngineParts(model=lambda: model, tokenizer=lambda: tokenizer, stop_token_ids=stops)
    engine = make_trainable(EngineSettings(capacity=capacity), parts)
    connection.send_bytes(b"ready")
    inbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    numbers: dict[str, int] = {}

    def answer() -> None:
        results = [(numbers.pop(result.session_id), result) for result in engine.poll()]
        connection.send_bytes(pickle.dumps((results, engine.stats)))

    while True:
        while not numbers or not inbox.empty():
            kind, value = inbox.get()
            if kind == "submit":
                numbers |= {request.session_id: number for number, request in value}
                engine.submit([request for _, request in value])
            elif kind == "weights":
                while numbers:
                    answer()
                version, tensors = value
                with torch.no_grad():
                    for ours, new in zip(_tensors(model), tensors, strict=True):
                        ours.copy_(new)
                engine.update_weights(WeightUpdate(model, version, Path()))
            else:
                engine.release(value)
                for session_id in value:
                    numbers.pop(session_id, None)
        answer()


def _listen(connection: Connection, inbox: "queue.SimpleQueue[tuple[str, Any]]") -> None:
    """Take messages at once, so that neither side waits for the other to read."""
    while True:
        inbox.put(pickle.loads(connection.recv_bytes()))  # noqa: S301 - of our own parent


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
