"""Which server a session talks to: balanced, sticky, and without those that died."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentsgym.generation.vllm_weights import Weights

STRIKES = 2  # failures in a row after which a server counts as dead


@dataclass(slots=True)
class Server:
    """A server at `url` (without a trailing slash).

    `checked`: since its last failure it was asked what it is, and found to suit us. `weights` are
    those that it holds, None where unknown. `strikes` counts failures since its last answer.
    """

    url: str
    alive: bool = True
    checked: bool = False
    weights: Weights | None = None
    strikes: int = 0

    def failed(self) -> None:
        """A request got no answer."""
        self.checked = False
        self.strikes += 1
        if self.strikes >= STRIKES:
            self.alive = False

    def answered(self) -> None:
        """A request got an answer."""
        self.strikes = 0


class ServerPool:
    """The servers of an engine. A session stays with its server, whose prefix cache holds its
    history, as long as that is alive; new ones go where the fewest sessions are."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ValueError("at least one server's URL is needed")
        self.servers = [Server(url.rstrip("/")) for url in dict.fromkeys(urls)]
        self._home: dict[str, Server] = {}
        self.moved = 0
        """How many times a session had to leave a dead server."""

    @property
    def alive(self) -> list[Server]:
        """Servers that may be asked."""
        return [server for server in self.servers if server.alive]

    def server_for(self, session_id: str) -> Server | None:
        """The session's server; None where all are dead."""
        home = self._home.get(session_id)
        if home is not None and home.alive:
            return home
        if not self.alive:
            return None
        self.moved += home is not None
        best = min(self.alive, key=self._sessions_on)
        self._home[session_id] = best
        return best

    def forget(self, session_id: str) -> None:
        """The session is over."""
        self._home.pop(session_id, None)

    def _sessions_on(self, server: Server) -> int:
        return sum(home is server for home in self._home.values())
