"""The endpoint of the programs that this process runs: a server on loopback, made when the first
program starts."""

import secrets
import threading
from collections.abc import Sequence
from functools import cache

from agentsgym.envs.program.run import ProgramRun
from agentsgym.generation.serving.calls import CallRefused, ModelAnswer
from agentsgym.types import ModelCall

_MAKING = threading.Lock()


class ProgramServer:
    """A `Backend` over running programs; a key belongs to one of them."""

    def __init__(self) -> None:
        from agentsgym.generation.serving.app import create_app
        from agentsgym.generation.serving.exchanges import Exchanges
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

    async def answer(self, key: str, call: ModelCall) -> ModelAnswer:
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
