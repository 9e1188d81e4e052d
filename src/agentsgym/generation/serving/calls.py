"""What stands behind the endpoint: the protocol of a backend, and its refusals."""

from collections.abc import Sequence
from typing import Protocol

from agentsgym.types import Answer, ModelCall


class CallRefused(Exception):
    """A call gets an error with this HTTP `status`; the message says what was wrong. `kind` is the
    error's type, `code` its code and `param` the part of the body, in the words of OpenAI's API."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param


class Backend(Protocol):
    """What answers the calls. `key` is the client's bearer key, "" without one. Each method raises
    CallRefused, for a wrong key with the status 401."""

    async def models(self, key: str) -> Sequence[str]:
        """The names of the models; any other name of a call is refused, unless there are none."""
        ...

    async def answer(self, key: str, call: ModelCall) -> Answer:
        """Answer a call. If the client disconnects, the coroutine goes on and its answer waits for
        the client's next try."""
        ...

    async def reward(self, key: str, session: str, value: float) -> None:
        """Reward the last answered call of the key's session. `session` is its id or its key, from
        the path; a client without a bearer key has the latter only, then both are equal."""
        ...
