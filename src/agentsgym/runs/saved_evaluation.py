"""An evaluation that is written to a directory while it is played, and continued from there."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.evaluation import Played, passes
from agentsgym.runs.files.evaluation import EvaluationDirectory, SavedFigures
from agentsgym.runs.from_config import versions
from agentsgym.runs.lock import RunLock
from agentsgym.runs.trust import remember_own
from agentsgym.types import Rollout
from agentsgym.types.text import masked, plain, short_repr

_MOST_WAITING, _LONGEST_WAIT = 64, 30.0  # rollouts, seconds


class SavedEvaluation:
    """The evaluation in a directory: `rollouts` were played before, by session id; `add` stores
    more, `finish` writes the figures. A rollout that failed is played again."""

    def __init__(self, directory: EvaluationDirectory, file: SavedFigures) -> None:
        self._directory = directory
        self._file = file
        stored = [rollout for rollout in directory.rollouts() if not rollout.failed]
        self.rollouts = {rollout.session_id: rollout for rollout in stored}
        self._waiting: list[Rollout] = []
        self._begun = self._written = time.monotonic()

    def add(self, rollout: Rollout) -> None:
        """Store a rollout, together with the next ones."""
        self._waiting.append(rollout)
        late = time.monotonic() - self._written > _LONGEST_WAIT
        if late or len(self._waiting) >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write the rollouts that wait."""
        if self._waiting:
            self._directory.write_part(self._waiting)
        self._waiting, self._written = [], time.monotonic()

    def finish(self, played: Played) -> None:
        """Write all rollouts in their order, and the figures."""
        self._directory.write_all(played.rollouts)
        self._waiting = []
        self._file.figures = played.evaluation
        self._file.passes = passes(played.rollouts)
        self._write("finished")

    def interrupt(self) -> None:
        """Write what there is, unless the evaluation is finished."""
        if self._file.status == "running":
            self.flush()
            self._write("interrupted")

    def start(self) -> None:
        """Write that the evaluation runs."""
        self._file.figures, self._file.passes = None, []
        self._write("running")

    def _write(self, status: Any) -> None:
        now = time.monotonic()
        self._file.seconds = round(self._file.seconds + now - self._begun, 3)
        self._begun = now
        self._file.status = status
        self._file.write(self._directory.file)


@contextmanager
def saved_evaluation(
    root: Path, model: str, settings: Mapping[str, Any], note: Callable[[str], None]
) -> Iterator[SavedEvaluation]:
    """The evaluation of `model` with these settings in the directory `root`, new or continued.

    Raises ConfigError if the directory has another evaluation or other files, RunInUse if another
    process writes it.
    """
    directory = EvaluationDirectory(root)
    wanted = plain(masked(dict(settings)))
    file = _found(directory, model, wanted)
    new = not directory.file.exists()
    lock = RunLock.acquire(root)
    try:
        if new:
            remember_own(root)
        saved = SavedEvaluation(directory, file)
        if saved.rollouts:
            note(f"{root} has {len(saved.rollouts)} rollouts, which are not played again")
        saved.start()
        try:
            yield saved
        finally:
            saved.interrupt()
    finally:
        lock.release()


def check_place(root: Path, model: str, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError if `root` has another evaluation than this one, or other files."""
    _found(EvaluationDirectory(root), model, plain(masked(dict(settings))))


def _found(directory: EvaluationDirectory, model: str, settings: Mapping[str, Any]) -> SavedFigures:
    """The file of the evaluation there, or a new one. Raises ConfigError as above."""
    root, old = directory.root, directory.read()
    if old is None:
        if root.exists() and (not root.is_dir() or any(p.name != ".lock" for p in root.iterdir())):
            raise ConfigError(f"{root} is no evaluation and not empty; name another --output")
        return SavedFigures(model=model, settings=dict(settings), versions=versions())
    difference = setting_that_differs(old.settings, settings)
    if difference is not None:
        key, before, now = difference
        raise ConfigError(
            f"{root} has an evaluation in which {key} is {before}, not {now}; name another --output"
        )
    old.versions = versions()
    return old


def setting_that_differs(old: Any, new: Any, key: str = "") -> tuple[str, str, str] | None:
    """The first setting that differs, as (key, old value, new value); None if all are equal."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in [*new, *(name for name in old if name not in new)]:
            found = setting_that_differs(old.get(name), new.get(name), f"{key}.{name}".lstrip("."))
            if found is not None:
                return found
        return None
    return None if old == new else (key, short_repr(old), short_repr(new))
