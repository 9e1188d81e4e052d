"""The process of a `ProcessEngine`: an embedded engine that takes its requests from a socket.

Started as `python -m agentsgym.generation.embedded.child FD MEMORY`: its end of a socket pair, and
the memory with the weights. It ends with its parent, which is the only one that it listens to.

New weights enter between actions: those that are open are finished first, and requests that come
after the weights wait for that.
"""

import contextlib
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from agentsgym.generation.embedded.engine import EmbeddedEngine, InProcessEngine
from agentsgym.generation.embedded.shared_weights import ModelInMemory, SharedMemory, bytes_of
from agentsgym.generation.models import UnsupportedModelError
from agentsgym.generation.plain import PlainEngine
from agentsgym.types import GenerationRequest, GenerationResult, WeightUpdate


@dataclass(slots=True)
class EngineServer:
    """Carries out the messages of the parent, in their order."""

    engine: InProcessEngine
    weights: ModelInMemory
    line: Connection
    inbox: "queue.SimpleQueue[tuple[Any, ...]]" = field(default_factory=queue.SimpleQueue)
    open: dict[str, int] = field(default_factory=dict)
    """The number of each session's open request."""
    held: list[tuple[Any, ...]] = field(default_factory=list)
    """Messages that wait until the weights of the first of them can be taken."""

    def serve(self) -> None:
        """Answer until the parent closes the line."""
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            self._take_messages()
            if self.open:
                self._answer(self.engine.poll())
            self._take_held()

    def _answer(self, results: Sequence[GenerationResult]) -> None:
        numbered = [(self.open.pop(result.session_id), result) for result in results]
        self.line.send(("results", numbered, self.engine.stats))

    def _take_messages(self) -> None:
        """Carry out what has come; wait for it if nothing is open."""
        wait = not self.open and not self.held
        while wait or not self.inbox.empty():
            message = self.inbox.get()
            if message[0] == "weights" or (self.held and message[0] == "submit"):
                self.held.append(message)
            else:
                self._carry_out(message)
            wait = False

    def _take_held(self) -> None:
        while self.held and (self.held[0][0] == "submit" or not self.open):
            self._carry_out(self.held.pop(0))

    def _carry_out(self, message: tuple[Any, ...]) -> None:
        name, *arguments = message
        getattr(self, f"on_{name}")(*arguments)

    def on_submit(self, requests: Sequence[tuple[int, GenerationRequest]]) -> None:
        """Sample these, which are numbered."""
        self.open |= {request.session_id: number for number, request in requests}
        self.engine.submit([request for _, request in requests])

    def on_cancel(self, session_ids: Sequence[str]) -> None:
        """End open requests with what was sampled so far."""
        dropped = self._drop_held(session_ids)
        self.open |= dropped
        self._answer([GenerationResult(sid, finish_reason="cancelled") for sid in dropped])
        self.engine.cancel(session_ids)

    def on_release(self, session_ids: Sequence[str]) -> None:
        """Forget sessions and their requests."""
        self._drop_held(session_ids)
        for session_id in session_ids:
            self.open.pop(session_id, None)
        self.engine.release(session_ids)

    def _drop_held(self, session_ids: Sequence[str]) -> dict[str, int]:
        """The numbers of these sessions' requests that waited for weights; they do no more."""
        gone = set(session_ids)
        dropped: dict[str, int] = {}
        for name, *rest in self.held:
            if name == "submit":
                dropped |= {r.session_id: n for n, r in rest[0] if r.session_id in gone}
                rest[0][:] = [(n, r) for n, r in rest[0] if r.session_id not in gone]
        return dropped

    def on_weights(self, version: int) -> None:
        """Sample from the weights that are in the memory now."""
        self.weights.refresh()
        self.engine.update_weights(WeightUpdate(self.engine.model, version, Path()))
        self.line.send(("taken", version))

    def _listen(self) -> None:
        """Pass messages on; end the process, whatever it does, when the parent closes the line."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.inbox.put(self.line.recv())
        os._exit(0)


def make_engine(model: Any, tokenizer: Any, options: dict[str, Any]) -> InProcessEngine:
    """The embedded engine, or the plain one for a model that it does not support."""
    try:
        return EmbeddedEngine(model, tokenizer, **options)
    except UnsupportedModelError:
        return PlainEngine(model, tokenizer, **options)


def main() -> None:
    """Serve the descriptors that are the arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = Connection(int(sys.argv[1]))
    try:
        path, threads = line.recv()
        sys.path += [entry for entry in path if entry not in sys.path]
        torch.set_num_threads(threads)
        structure, specs, device, tokenizer, options = line.recv()
        memory = SharedMemory(bytes_of(specs), int(sys.argv[2]))
        weights = ModelInMemory(structure, specs, memory, device)
        server = EngineServer(make_engine(weights.model, tokenizer, options), weights, line)
        line.send(("ready", type(server.engine).__name__))
        server.serve()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except BaseException:
        line.send(("error", traceback.format_exc()))
        raise


if __name__ == "__main__":
    main()
