"""A server and this program's sessions on it: places, retries, and whether a task is one."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from agentsgym.integrations.openenv.fields import Fields, NoField, fields_of
from agentsgym.integrations.openenv.wire import Full, Line, Seen, Unreachable, Wire, WireError
from agentsgym.rollout.threads import check_wanted
from agentsgym.types.text import short_repr

T = TypeVar("T")

_TRIES = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_CHANCE = random.Random()


class ServerUnfit(RuntimeError):
    """A server that cannot be played; the message says why."""


class Remote:
    """A server, for all sessions of an environment.

    Args:
        wire: its address.
        patience: seconds that a session waits for a place while none becomes free here.
        fields: arguments of `fields_of` other than the schema.
    """

    def __init__(self, wire: Wire, patience: float, fields: Mapping[str, Any]) -> None:
        self._wire = wire
        self._patience = patience
        self._given = dict(fields)
        self._fields: Fields | None = None
        self._freed = 0.0
        self._unfit: str | None = None
        self._checked = False
        self._checking = threading.Lock()
        self._failed: WireError | None = None
        self._failed_at = 0.0

    def begin(self, task: Mapping[str, Any]) -> tuple[Line, Seen]:
        """A new session on a task, in a place of its own. Raises WireError or ServerUnfit."""
        self.check(task)
        return self._begin(task)

    def end(self, line: Line) -> None:
        """End a session."""
        line.close()
        self._freed = time.monotonic()

    @property
    def fields(self) -> Fields:
        """The fields of actions and observations. Raises WireError or ServerUnfit."""
        if self._fields is None:
            schema = self._tried(lambda: self._wire.get("schema"))
            try:
                self._fields = fields_of(schema, **self._given)
            except NoField as error:
                raise ServerUnfit(f"the OpenEnv server cannot be played: {error}") from None
        return self._fields

    def number_of_tasks(self, split: str) -> int:
        """How many tasks the server's task API lists. Raises WireError or ServerUnfit."""
        names = self._tried(lambda: self._wire.get("list_environments"))
        name = names[0] if isinstance(names, list) and names else "environment"
        answer = self._tried(lambda: self._wire.post(f"{name}/num_tasks", {"split": split}))
        number = answer.get("num_tasks") if isinstance(answer, Mapping) else None
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ServerUnfit(f"the OpenEnv server lists no tasks of the split {split!r}")
        return number

    def check(self, task: Mapping[str, Any]) -> None:
        """Check once that a task is one: two sessions on it must begin with the same observation.

        A server whose `reset` ignores its arguments plays another game in each rollout of a group.
        Raises ServerUnfit, then and for each later session, and WireError. Sessions that begin
        during the check share its failure: one after another they could wait for hours.
        """
        asked = time.monotonic()
        with self._checking:
            if not self._checked:
                if self._failed is not None and self._failed_at >= asked:
                    raise self._failed
                self._unfit = self._problem_or_failure(task)
                self._checked = True
        if self._unfit is not None:
            raise ServerUnfit(self._unfit)

    def _problem_or_failure(self, task: Mapping[str, Any]) -> str | None:
        try:
            return self._problem(task)
        except WireError as error:
            self._failed, self._failed_at = error, time.monotonic()
            raise

    def _problem(self, task: Mapping[str, Any]) -> str | None:
        fields = self.fields
        texts = []
        for _ in range(2):
            line, seen = self._begin(task)
            self.end(line)
            texts.append(fields.text(seen.observation))
        if texts[0] == texts[1]:
            return None
        return (
            f"the OpenEnv server began the task {short_repr(dict(task))} with two different "
            "observations: its reset ignores what names a task, so the rollouts of a group would "
            f"play different ones ({short_repr(texts[0])}, {short_repr(texts[1])})"
        )

    def _begin(self, task: Mapping[str, Any]) -> tuple[Line, Seen]:
        start = time.monotonic()
        for pause in _pauses():
            try:
                return self._tried(lambda: self._entered(task))
            except Full as error:
                self._give_up_after(start, error)
            _sleep(pause)
        raise AssertionError("there is always another pause")

    def _entered(self, task: Mapping[str, Any]) -> tuple[Line, Seen]:
        line = self._wire.open()
        try:
            return line, line.ask("reset", task)
        except Full:
            line.close()
            raise
        except BaseException:
            self.end(line)
            raise

    def _give_up_after(self, start: float, error: Full) -> None:
        """Raise Full if no session of ours has freed a place for too long."""
        waited = time.monotonic() - max(start, self._freed)
        if waited > self._patience:
            raise Full(
                f"{error}, and no place became free within {self._patience:g} s: set "
                "env_config.sessions to at most what the server plays at once"
            )

    def _tried(self, work: Callable[[], T]) -> T:
        """Try work again if the server cannot be reached or drops the connection."""
        for _, pause in zip(range(_TRIES - 1), _pauses(), strict=False):
            try:
                return work()
            except Unreachable:
                _sleep(pause)
        return work()


def _pauses() -> Iterator[float]:
    """Ever longer seconds, other ones for each session."""
    longest = _FIRST_PAUSE
    while True:
        yield longest * _CHANCE.uniform(0.5, 1.0)
        longest = min(2.0 * longest, _LONGEST_PAUSE)


def _sleep(seconds: float) -> None:
    check_wanted()
    time.sleep(seconds)
