"""Plays the next generation during the optimizer's work on the current one."""

import logging
import threading
from collections.abc import Callable, Sequence

from agentsgym.types import Rollout, RolloutRequest

logger = logging.getLogger(__name__)

Play = Callable[[Sequence[RolloutRequest]], list[Rollout]]


class Prefetcher:
    """Plays at most one generation in its own thread. The thread is a daemon, so an aborted run
    does not wait for it."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._thread: threading.Thread | None = None
        self._requests: Sequence[RolloutRequest] = ()
        self._rollouts: list[Rollout] | None = None
        self._error: BaseException | None = None

    def start(self, requests: Sequence[RolloutRequest]) -> None:
        """Start playing `requests`; earlier rollouts that were not taken are dropped."""
        self.wait()
        self._requests, self._rollouts, self._error = requests, None, None
        self._thread = threading.Thread(target=self._work, name="agentsgym-prefetch", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when no play is running."""
        if self._thread is not None:
            self._thread.join()

    def take(self, requests: Sequence[RolloutRequest]) -> list[Rollout] | None:
        """The rollouts of `requests`, when they are done; None if other requests, or none, were
        played.

        Raises the errors of playing them.
        """
        if self._thread is None:
            return None
        self.wait()
        self._thread = None
        if self._error is not None:
            raise self._error
        if list(requests) != list(self._requests):
            logger.warning(
                "the tasks are not the expected ones; the prefetched rollouts are dropped"
            )
            return None
        return self._rollouts

    def _work(self) -> None:
        try:
            self._rollouts = self._play(self._requests)
        except BaseException as error:
            self._error = error
