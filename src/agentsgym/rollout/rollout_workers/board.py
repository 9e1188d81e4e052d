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
    """A request and how it is played; `over` gets its rollout, `losses` counts lost workers. While
    any is open that is to be played `first`, no other begins."""

    env: MultistepEnv
    request: RolloutRequest
    sampling: SamplingParams = field(default_factory=SamplingParams)
    over: list[Rollout] = field(default_factory=list)
    first: bool = False
    losses: int = 0

    @property
    def session_id(self) -> str:
        """The name of the request's session."""
        return self.request.session_id


@dataclass(slots=True)
class _Load:
    """What a worker plays of those tickets that count now: their number, and whether one of them
    is to be played alone."""

    playing: int = 0
    alone: bool = False

    def takes(self, ticket: Ticket, capacity: int) -> bool:
        if ticket.losses >= _ALONE:
            return not self.playing
        return self.playing < capacity and not self.alone

    def add(self, ticket: Ticket) -> None:
        self.playing += 1
        self.alone = self.alone or ticket.losses >= _ALONE


class Board:
    """The requests that wait, and those that each worker plays; workers are numbers."""

    def __init__(self) -> None:
        self._waiting: deque[Ticket] = deque()
        self._playing: dict[int, dict[str, Ticket]] = {}
        self._names: set[str] = set()
        self._first: set[str] = set()
        self.replayed = 0
        """How many times a request began again because its worker was lost."""

    def add(self, tickets: Sequence[Ticket]) -> None:
        """Let these wait, after those that wait already. Raises ValueError for a session that is
        open, and then adds none."""
        names = [ticket.session_id for ticket in tickets]
        for number, name in enumerate(names):
            if name in self._names or name in names[:number]:
                raise ValueError(f"session {name!r} is already open")
        self._names.update(names)
        self._first.update(ticket.session_id for ticket in tickets if ticket.first)
        self._waiting.extend(tickets)
        self._sort()

    @property
    def open(self) -> int:
        """Number of requests that are not over."""
        return len(self._names)

    def playing(self, worker: int) -> int:
        """Number of requests that a worker plays."""
        return len(self._playing.get(worker, ()))

    def hand_out(self, workers: Iterable[int], capacity: int) -> Mapping[int, list[Ticket]]:
        """Give waiting requests, in their order, to the workers that play the fewest, up to
        `capacity` each; returns what each got. While there are some to be played first, no others
        are given or counted."""
        loads = {worker: self._load(worker) for worker in workers}
        given: dict[int, list[Ticket]] = {}
        while self._waiting and self._counts(self._waiting[0]):
            ticket = self._waiting[0]
            able = [worker for worker, load in loads.items() if load.takes(ticket, capacity)]
            if not able:
                break
            chosen = min(able, key=lambda worker: loads[worker].playing)
            loads[chosen].add(ticket)
            self._waiting.popleft()
            self._playing.setdefault(chosen, {})[ticket.session_id] = ticket
            given.setdefault(chosen, []).append(ticket)
        return given

    def finish(self, session_id: str) -> Ticket | None:
        """Remove a request that is over; None if it was over before."""
        if session_id not in self._names:
            return None
        self._forget([session_id])
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
        self._forget([ticket.session_id for ticket in given_up])
        self._waiting.extendleft(reversed(again))
        self._sort()
        self.replayed += len(again)
        return given_up

    def _load(self, worker: int) -> _Load:
        load = _Load()
        for ticket in self._playing.get(worker, {}).values():
            if self._counts(ticket):
                load.add(ticket)
        return load

    def _counts(self, ticket: Ticket) -> bool:
        return ticket.first or not self._first

    def _sort(self) -> None:
        if self._first:
            self._waiting = deque(sorted(self._waiting, key=lambda ticket: not ticket.first))

    def _forget(self, names: Sequence[str]) -> None:
        self._names.difference_update(names)
        self._first.difference_update(names)
