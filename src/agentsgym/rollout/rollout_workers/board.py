"""Which rollout worker plays which request. Pure bookkeeping: no Ray, no threads.

A request whose worker is lost is played again by another one; after `MOST_LOSSES` lost workers it
is given up. A request that has lost all but its last worker is played alone, so that a trial that
kills its worker takes no other with it in the end.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentsgym.envs.base import MultistepEnv
from agentsgym.types import Rollout, RolloutRequest, SamplingParams

MOST_LOSSES = 3
_ALONE = MOST_LOSSES - 1


@dataclass(slots=True, eq=False)
class Ticket:
    """A request and how it is played; `over` gets its rollout, `losses` counts lost workers."""

    env: MultistepEnv
    request: RolloutRequest
    sampling: SamplingParams = field(default_factory=SamplingParams)
    over: list[Rollout] = field(default_factory=list)
    losses: int = 0

    @property
    def session_id(self) -> str:
        """The name of the request's session."""
        return self.request.session_id


class Board:
    """The requests that wait, and those that each worker plays; workers are numbers."""

    def __init__(self) -> None:
        self._waiting: deque[Ticket] = deque()
        self._playing: dict[int, dict[str, Ticket]] = {}
        self._names: set[str] = set()
        self.replayed = 0
        """How many times a request began again because its worker was lost."""

    def add(self, tickets: Sequence[Ticket], *, first: bool = False) -> None:
        """Let these wait, after those that wait already, or `first` before them. Raises ValueError
        for a session that is open, and then adds none."""
        names = [ticket.session_id for ticket in tickets]
        for number, name in enumerate(names):
            if name in self._names or name in names[:number]:
                raise ValueError(f"session {name!r} is already open")
        self._names.update(names)
        if first:
            self._waiting.extendleft(reversed(tickets))
        else:
            self._waiting.extend(tickets)

    @property
    def open(self) -> int:
        """Number of requests that are not over."""
        return len(self._names)

    def playing(self, worker: int) -> int:
        """Number of requests that a worker plays."""
        return len(self._playing.get(worker, ()))

    def hand_out(self, workers: Iterable[int], capacity: int) -> Mapping[int, list[Ticket]]:
        """Give waiting requests, in their order, to the workers that play the fewest, up to
        `capacity` each; returns what each got."""
        among = list(workers)
        given: dict[int, list[Ticket]] = {}
        while self._waiting:
            ticket = self._waiting[0]
            able = [worker for worker in among if self._takes(worker, ticket, capacity)]
            if not able:
                break
            chosen = min(able, key=self.playing)
            self._waiting.popleft()
            self._playing.setdefault(chosen, {})[ticket.session_id] = ticket
            given.setdefault(chosen, []).append(ticket)
        return given

    def finish(self, session_id: str) -> Ticket | None:
        """Remove a request that is over; None if it was over before."""
        if session_id not in self._names:
            return None
        self._names.remove(session_id)
        for tickets in self._playing.values():
            if session_id in tickets:
                return tickets.pop(session_id)
        found = next(ticket for ticket in self._waiting if ticket.session_id == session_id)
        self._waiting.remove(found)
        return found

    def lose(self, worker: int) -> list[Ticket]:
        """Let what a lost worker played wait again, first in line; returns what is given up."""
        lost = list(self._playing.pop(worker, {}).values())
        for ticket in lost:
            ticket.losses += 1
        given_up = [ticket for ticket in lost if ticket.losses >= MOST_LOSSES]
        again = [ticket for ticket in lost if ticket.losses < MOST_LOSSES]
        self._names.difference_update(ticket.session_id for ticket in given_up)
        self._waiting.extendleft(reversed(again))
        self.replayed += len(again)
        return given_up

    def _takes(self, worker: int, ticket: Ticket, capacity: int) -> bool:
        mine = self._playing.get(worker, {})
        if ticket.losses >= _ALONE:
            return not mine
        return len(mine) < capacity and not any(t.losses >= _ALONE for t in mine.values())
