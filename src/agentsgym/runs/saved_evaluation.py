"""An evaluation that is written to a directory while it is played, and continued from there."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.evaluation import Played, passes
from agentsgym.runs.files import RunDirectory, StoredRollout, read_rollouts
from agentsgym.runs.files.records import SavedFigures
from agentsgym.runs.files.rollouts import write_rollouts
from agentsgym.runs.from_config import versions
from agentsgym.runs.lock import lock_directory
from agentsgym.runs.sources import flat
from agentsgym.types import Rollout
from agentsgym.types.text import masked, plain, short_repr

_PHASE = "eval"
_MOST_WAITING = 16  # rollouts that a killed process has to play again


class SavedEvaluation:
    """The evaluation in a directory: `rollouts` were played before, by session id; `add` stores
    more, `finish` writes the figures. A rollout that failed is played again."""

    def __init__(self, root: Path, file: SavedFigures) -> None:
        self._root = root
        self._file = file
        self._waiting: list[Rollout] = []
        self._begun = time.monotonic()
        self.rollouts = {one.session_id: one for one in read_rollouts(root) if not one.failed}
        file.figures, file.passes = None, []
        self._write("running")

    def add(self, rollout: Rollout) -> None:
        """Store a rollout, together with the next ones."""
        self._waiting.append(rollout)
        if len(self._waiting) >= _MOST_WAITING:
            self._flush()

    def finish(self, played: Played) -> None:
        """Write all rollouts in their order, and the figures."""
        write_whole(self._root, played.rollouts)
        self._file.figures = played.evaluation
        self._file.passes = passes(played.rollouts)
        self._write("finished")

    def interrupt(self) -> None:
        """Write what there is, unless the evaluation is finished."""
        if self._file.status == "running":
            try:
                self._flush()
            finally:
                self._write("interrupted")

    def _flush(self) -> None:
        if self._waiting:
            number = len(list(RunDirectory(self._root).rollout_files())) + 1
            _write(self._root, self._waiting, f"part-{number:06d}")
        self._waiting = []

    def _write(self, status: Any) -> None:
        now = time.monotonic()
        self._file.seconds = round(self._file.seconds + now - self._begun, 3)
        self._begun = now
        self._file.status = status
        write = self._file.write if status == "running" else self._file.write_end
        write(RunDirectory(self._root).evaluation)


def _write(root: Path, rollouts: Sequence[Rollout], part: str | None = None) -> Path:
    path = RunDirectory(root).rollout_file(_PHASE, 0, part)
    write_rollouts(path, (StoredRollout(one, _PHASE, 0, dataset=part) for one in rollouts))
    return path


def write_whole(root: Path, rollouts: Sequence[Rollout]) -> None:
    """Store the rollouts of a finished evaluation together, instead of its parts."""
    whole = _write(root, rollouts)
    for _, _, path in RunDirectory(root).rollout_files():
        if path != whole:
            path.unlink(missing_ok=True)


@contextmanager
def saved_evaluation(
    root: Path, model: str, settings: Mapping[str, Any], note: Callable[[str], None]
) -> Iterator[SavedEvaluation]:
    """The evaluation of `model` with these settings in the directory `root`, new or continued.

    Raises ConfigError if the directory has another evaluation or other files, RunInUse if another
    process writes it.
    """
    new = not RunDirectory(root).evaluation.is_file()
    file = _new_file(root, model, settings) if new else _continued_file(root, settings)
    lock = lock_directory(root)
    try:
        saved = SavedEvaluation(root, file)
        if saved.rollouts:
            note(f"{root} has {len(saved.rollouts)} rollouts, which are not played again")
        try:
            yield saved
        finally:
            saved.interrupt()
    finally:
        lock.release()


def _new_file(root: Path, model: str, settings: Mapping[str, Any]) -> SavedFigures:
    if root.exists() and (not root.is_dir() or any(p.name != ".lock" for p in root.iterdir())):
        raise ConfigError(f"{root} is no evaluation and not empty; name another --output")
    return SavedFigures(model=model, settings=plain(masked(dict(settings))), versions=versions())


def _continued_file(root: Path, settings: Mapping[str, Any]) -> SavedFigures:
    old = SavedFigures.read(RunDirectory(root).evaluation)
    before, now = flat(old.settings), flat(plain(masked(dict(settings))))
    for key in dict.fromkeys([*now, *before]):
        if before.get(key) != now.get(key):
            raise ConfigError(
                f"{root} has an evaluation in which {key} is {short_repr(before.get(key))}, not "
                f"{short_repr(now.get(key))}; name another --output"
            )
    old.versions = versions()
    return old
