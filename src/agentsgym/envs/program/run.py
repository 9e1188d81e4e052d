"""The runs of programs, which are functions in threads or commands, and the endpoint on loopback
that takes their calls.

Two threads meet here. The endpoint's event loop brings calls (`answer`), and the environment takes
them one after the other (`next_event`) and answers them (`reply`). A run ends once, whoever ends it
first: the program, or `close`; then open calls are refused.
"""

import asyncio
import inspect
import json
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from agentsgym import keeper
from agentsgym.generation.serving.calls import CallRefused, Exchanges
from agentsgym.types import Answer, ModelCall, TrialInfo
from agentsgym.types.text import clean_text

MOST_OUTPUT = 20_000
"""Bytes of a command's output that are kept, the last ones."""
_CHUNK = 65536
_MAKING = threading.Lock()


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a program reaches the model.

    Args:
        base_url: what an OpenAI client takes as `base_url`.
        api_key: the key of this episode's calls.
        session_id: the rollout's name, the same in all episodes of its trial.
        trial: the episode's position in its trial, with the outcomes of earlier episodes.
        model: a name for clients that ask for one; any other name does as well.
    """

    base_url: str
    api_key: str = field(repr=False)
    session_id: str = ""
    trial: TrialInfo = field(default_factory=TrialInfo)
    model: str = "agent"

    @property
    def anthropic_url(self) -> str:
        """What an Anthropic client takes as `base_url`."""
        return self.base_url.removesuffix("/v1")

    @property
    def session_url(self) -> str:
        """The address of this episode: rewards are posted to `session_url/reward`, and clients that
        can't send a key use `session_url/v1`."""
        return f"{self.anthropic_url}/sessions/{self.api_key}"

    def variables(self, task: Mapping[str, Any], reward_file: Path) -> dict[str, str]:
        """The environment variables of a command."""
        outcomes = [
            {"reward": one.reward, "win": one.win, "stop_reason": one.stop_reason}
            for one in self.trial.outcomes
        ]
        trial = {
            "episode": self.trial.episode,
            "episodes": self.trial.episodes,
            "free_shots": self.trial.free_shots,
            "outcomes": outcomes,
        }
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_KEY": self.api_key,
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": self.api_key,
            "AGENTSGYM_MODEL": self.model,
            "AGENTSGYM_SESSION": self.session_id,
            "AGENTSGYM_SESSION_URL": self.session_url,
            "AGENTSGYM_TASK": json.dumps(task),
            "AGENTSGYM_TRIAL": json.dumps(trial),
            "AGENTSGYM_REWARD_FILE": str(reward_file),
        }


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """The end of a program: its `result`, or the `error` that ended it; and a command's output."""

    result: Any = None
    error: str | None = None
    output: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """A call that waits for its answer."""

    call: ModelCall
    answer: "asyncio.Future[Answer]"
    loop: asyncio.AbstractEventLoop


class ProgramRun:
    """A run of the session `session_id`, whose calls have the key `key`."""

    def __init__(self, session_id: str, key: str) -> None:
        self.session_id = session_id
        self.key = key
        self._events: queue.SimpleQueue[_Open | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: dict[int, _Open] = {}
        self._answering: _Open | None = None
        self._end: ProgramEnd | None = None
        self._closed = ""
        self._rewards: list[float] = []
        self._stop: Callable[[], None] = lambda: None

    # -- in the endpoint's event loop ------------------------------------------------------------

    async def answer(self, call: ModelCall) -> Answer:
        """The answer to a call of the program. Raises CallRefused once the run is over."""
        loop = asyncio.get_running_loop()
        waiting = _Open(call, loop.create_future(), loop)
        with self._lock:
            if self._closed:
                raise CallRefused(self._closed, 410, code="session_over")
            self._open[id(waiting)] = waiting
        self._events.put(waiting)
        return await waiting.answer

    def reward(self, value: float) -> None:
        """Add to the reward of the last answered call. Raises CallRefused before the first, and
        once the run is over."""
        with self._lock:
            if self._closed:
                raise CallRefused(self._closed, 410, code="session_over")
            if not self._rewards:
                raise CallRefused("there is no answered call yet that a reward could belong to")
            self._rewards[-1] += value

    def _deliver(self, waiting: _Open, answer: Answer | CallRefused) -> None:
        """Answer or refuse a call. From now on rewards belong to it, no earlier: the program may
        still post one for the answer that it has."""
        if isinstance(answer, Answer):
            with self._lock:
                self._rewards.append(0.0)
        _settle(waiting.answer, answer)

    # -- in the environment's thread -------------------------------------------------------------

    def start_function(self, function: Callable[[], Any]) -> None:
        """Run a function, whose result may be awaitable, in a thread."""
        threading.Thread(
            target=self._run_function, args=(function,), name="agentsgym-program", daemon=True
        ).start()

    def start_command(
        self, command: list[str], settings: ClientSettings, task: Mapping[str, Any]
    ) -> None:
        """Run a command in a process group of its own, which ends with the run."""
        folder = tempfile.TemporaryDirectory(prefix="agentsgym-program-")
        reward_file = Path(folder.name) / "reward"
        process = subprocess.Popen(  # noqa: S603 - the user's own command
            [sys.executable, "-I", keeper.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **settings.variables(task, reward_file)},
        )
        assert process.stdin is not None
        self._stop = process.stdin.close  # the keeper ends the command with all its children
        threading.Thread(
            target=self._watch_command,
            args=(process, folder, reward_file),
            name="agentsgym-program",
            daemon=True,
        ).start()

    def next_event(self, seconds: float) -> ModelCall | ProgramEnd:
        """The program's next call, or its end, which comes before calls that nobody waits for any
        more. Raises TimeoutError after `seconds`."""
        until = time.monotonic() + seconds
        while self._end is None:
            try:
                event = self._events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise TimeoutError from None
            if event is not None and self._end is None:
                self._answering = event
                return event.call
        return self._end

    def reply(self, answer: Answer | CallRefused) -> None:
        """Answer or refuse the call that `next_event` returned last."""
        waiting = self._answering
        if waiting is not None:
            with self._lock:
                self._open.pop(id(waiting), None)
            waiting.loop.call_soon_threadsafe(self._deliver, waiting, answer)

    def rewards(self, answered: int) -> tuple[float, ...]:
        """What was posted so far for each of so many answered calls."""
        with self._lock:
            return (*self._rewards, *[0.0] * (answered - len(self._rewards)))

    def close(self, reason: str) -> None:
        """End the program, and refuse its open calls and further ones."""
        with self._lock:
            self._closed = reason
            still_open = list(self._open.values())
            self._open.clear()
        for waiting in still_open:
            refusal = CallRefused(reason, 410, code="session_over")
            waiting.loop.call_soon_threadsafe(_settle, waiting.answer, refusal)
        self._stop()

    # -- in the program's thread -----------------------------------------------------------------

    def _run_function(self, function: Callable[[], Any]) -> None:
        try:
            result = function()
            if inspect.isawaitable(result):
                result = asyncio.run(_wait_for(result))
        except BaseException:
            self._ended(ProgramEnd(error=traceback.format_exc()))
        else:
            self._ended(ProgramEnd(result))

    def _watch_command(
        self,
        process: "subprocess.Popen[bytes]",
        folder: "tempfile.TemporaryDirectory[str]",
        reward_file: Path,
    ) -> None:
        assert process.stdout is not None
        kept = bytearray()
        while chunk := os.read(process.stdout.fileno(), _CHUNK):
            kept += chunk
            del kept[:-MOST_OUTPUT]
        process.stdout.close()
        status = process.wait()
        self._stop()
        output = clean_text(kept.decode(errors="replace"))
        written = reward_file.read_text(errors="replace") if reward_file.is_file() else ""
        folder.cleanup()
        if status:
            self._ended(ProgramEnd(error=f"exit status {status}\n{output}", output=output))
        else:
            line = written.strip() or (output.strip().splitlines() or [""])[-1]
            self._ended(_of_line(line, output))

    def _ended(self, end: ProgramEnd) -> None:
        self._end = end
        self._events.put(None)


def _of_line(line: str, output: str) -> ProgramEnd:
    """The end of a command that wrote `line` as its result."""
    try:
        return ProgramEnd(json.loads(line), output=output)
    except (ValueError, RecursionError):
        text = f"its last line must be the reward (a number, a list or a JSON object), got {line!r}"
        return ProgramEnd(error=text[:1000], output=output)


async def _wait_for(result: Any) -> Any:
    return await result


def _settle(future: "asyncio.Future[Answer]", answer: Answer | CallRefused) -> None:
    if future.done():
        return
    if isinstance(answer, CallRefused):
        future.set_exception(answer)
    else:
        future.set_result(answer)


# -- the endpoint --------------------------------------------------------------------------------


class ProgramServer:
    """A `Backend` over running programs; a key belongs to one of them."""

    def __init__(self) -> None:
        from agentsgym.generation.serving.app import create_app
        from agentsgym.generation.serving.listening import ServerThread

        self._runs: dict[str, ProgramRun] = {}
        self._exchanges = Exchanges()
        self._server = ServerThread(create_app(self, self._exchanges))
        self.base_url = f"{self._server.url}/v1"

    def open(self, session_id: str) -> ProgramRun:
        """A run for a session, with a key that nobody can guess."""
        run = ProgramRun(session_id, f"{session_id}-{secrets.token_hex(16)}")
        self._runs[run.key] = run
        return run

    def close(self, run: ProgramRun, reason: str) -> None:
        """End a run."""
        run.close(reason)
        self._runs.pop(run.key, None)
        self._exchanges.forget(run.key)

    async def models(self, key: str) -> Sequence[str]:
        """No names: a program may say any."""
        self._run(key)
        return ()

    async def answer(self, key: str, call: ModelCall) -> Answer:
        """The answer of the model that is trained."""
        return await self._run(key).answer(call)

    async def reward(self, key: str, session: str, value: float) -> None:
        """Reward the last call of a run, whose key or name is `session`."""
        run = self._run(key)
        if session not in (key, run.session_id):
            raise CallRefused(f"the key belongs to session {run.session_id}", 403)
        run.reward(value)

    def _run(self, key: str) -> ProgramRun:
        try:
            return self._runs[key]
        except KeyError:
            raise CallRefused(
                "the key belongs to no running session", 401, "authentication_error"
            ) from None


@cache
def _server() -> ProgramServer:
    return ProgramServer()


def program_server() -> ProgramServer:
    """The server of this process. Raises MissingExtra without the extra `endpoint`."""
    with _MAKING:
        return _server()
