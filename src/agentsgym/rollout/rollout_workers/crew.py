"""The workers of one learner: hired, heard, lost and replaced. No requests, no threads.

Each of `count` places has one worker at a time. A place whose workers fail several times in a row
stays empty.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from agentsgym.rollout.failures import last_line
from agentsgym.rollout.rollout_workers.actor import RemotePlayer
from agentsgym.rollout.rollout_workers.player import Served
from agentsgym.rollout.workers import worker
from agentsgym.rollout.workers.ray_actor import ray_package

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""Seconds after which a worker answers although no rollout ended."""
SILENT_SECONDS = 60.0
"""Seconds beyond these after which a worker without an answer counts as lost."""
MOST_FAILURES = 3
"""Workers in a row that a place may lose without a finished rollout."""
_PAUSE_SECONDS = 2.0
"""Seconds, for each of these, before its next one is hired: Ray goes on for some seconds to place
new actors on a node that was lost."""


class WorkersFailed(RuntimeError):
    """No rollout worker is left, or none could be started; the message says why."""


@dataclass(frozen=True, slots=True)
class Event:
    """What became of a worker's call: `method` with its answer `value`, or "lost" with the reason
    as `value`."""

    player: RemotePlayer
    method: str
    value: Any


class Crew:
    """`setup` are the bytes of a `PlayerSetup`; each worker reserves `resources`."""

    def __init__(self, count: int, resources: Mapping[str, float], setup: bytes) -> None:
        self._setup = ray_package().put(setup)
        self._resources = dict(resources)
        self._failures = [0] * count
        self._hires_at = [0.0] * count
        self._told = False
        self._last = ""
        self.players: dict[int, RemotePlayer] = {}
        self.lost = 0
        """How many workers were lost."""

    @property
    def ready(self) -> list[RemotePlayer]:
        """The workers that can play."""
        return [player for player in self.players.values() if player.ready]

    def hire(self, served: Served) -> None:
        """Start a worker in each empty place, which samples from these weights."""
        for place, failures in enumerate(self._failures):
            due = monotonic() >= self._hires_at[place]
            if due and place not in self.players and failures < MOST_FAILURES:
                self.players[place] = RemotePlayer.hired(
                    place, self._resources, (self._setup, served)
                )

    def calls(self) -> list[Any]:
        """References to all open calls."""
        return [call for player in self.players.values() for call in player.calls]

    def answer(self, call: Any) -> Event | None:
        """What a finished call says; None if its worker was lost before."""
        found = next((p for p in self.players.values() if call in p.calls), None)
        if found is None:
            return None
        method = found.calls.pop(call)
        found.heard = monotonic()
        try:
            kind, value = ray_package().get(call)
        except ray_package().exceptions.RayError as error:
            return self._lose(found, f"died ({type(error).__name__})")
        if kind == "error":
            return self._lose(found, f"failed: {last_line(value)}")
        if method == "start":
            found.ready, found.node = True, value
        return Event(found, method, value)

    def silent(self) -> Iterator[Event]:
        """The workers that have not answered for too long; they are lost."""
        most = POLL_SECONDS + SILENT_SECONDS
        for player in self.ready:
            if monotonic() - player.heard > most:
                yield self._lose(player, f"gave no answer for {most:g} seconds")

    def check_start(self) -> None:
        """Raise WorkersFailed if no worker is left, or none could be started in time; warn once if
        some could not."""
        if min(self._failures) >= MOST_FAILURES:
            raise WorkersFailed(f"no rollout worker is left: {self._last}")
        waits = [monotonic() - player.heard for player in self.players.values() if not player.ready]
        text = (
            f"a rollout worker that reserves {self._resources or {'num_cpus': 1}} could not be "
            f"started within {worker.START_SECONDS:g} seconds"
        )
        if not self.ready and self._is_full and min(waits) > worker.START_SECONDS:
            raise WorkersFailed(f"{text}; the cluster has {_cluster()}")
        if self.ready and not self._told and max(waits, default=0.0) > worker.START_SECONDS:
            self._told = True
            logger.warning("%s; %d play", text, len(self.ready))

    @property
    def _is_full(self) -> bool:
        """Whether each place that may have a worker has one."""
        return all(
            place in self.players or failures >= MOST_FAILURES
            for place, failures in enumerate(self._failures)
        )

    def succeeded(self, player: RemotePlayer) -> None:
        """A worker finished a rollout, or one is given up that it was lost to."""
        self._failures[player.number] = 0

    def dismiss(self) -> None:
        """End all workers."""
        for player in self.players.values():
            player.dismiss()
        self.players.clear()

    def _lose(self, player: RemotePlayer, how: str) -> Event:
        where = f" on {player.node}" if player.node else ""
        why = f"the rollout worker{where} {how}"
        del self.players[player.number]
        player.dismiss()
        self.lost += 1
        self._failures[player.number] += 1
        pause = _PAUSE_SECONDS * self._failures[player.number]
        self._hires_at[player.number] = monotonic() + pause
        logger.warning("%s; its rollouts are played by others", why)
        self._last = why
        return Event(player, "lost", why)


def wait_for_any(calls: Sequence[Any], timeout: float) -> list[Any]:
    """The calls that have finished, after `timeout` seconds at most. Ray does not wait where
    there is no call, as between the loss of all workers and their replacement."""
    if not calls:
        sleep(timeout)
        return []
    done: list[Any] = ray_package().wait(list(calls), num_returns=1, timeout=timeout)[0]
    if not done:
        return []
    more: list[Any] = ray_package().wait(list(calls), num_returns=len(calls), timeout=0)[0]
    return more


def _cluster() -> str:
    found = ray_package().cluster_resources()
    return ", ".join(f"{name} {found[name]:g}" for name in ("CPU", "GPU") if name in found)
