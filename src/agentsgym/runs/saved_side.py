"""A saved evaluation as one side of a comparison: its rollouts are read, and nothing is played."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsgym.envs import ConfigError, EnvPool
from agentsgym.evaluation import Played, assess_played
from agentsgym.runs.config import RunConfig
from agentsgym.runs.contestant import what_is_played
from agentsgym.runs.files.evaluation import EvaluationDirectory, SavedFigures
from agentsgym.runs.from_config import make_env
from agentsgym.runs.saved_evaluation import check_place, setting_that_differs
from agentsgym.runs.trust import check_links, is_own, trusted
from agentsgym.types import RolloutRequest
from agentsgym.types.text import masked, plain


def is_saved(name: str) -> bool:
    """Whether `name` is the directory of a saved evaluation."""
    return EvaluationDirectory(Path(name)).file.is_file()


@dataclass(frozen=True, slots=True)
class SavedSide:
    """A finished evaluation: its file and what it played."""

    file: SavedFigures
    played: Played

    @property
    def temperature(self) -> float | None:
        """The temperature that its model was sampled at; None for a scripted agent."""
        sampling = self.file.settings.get("sampling")
        found = sampling.get("temperature") if isinstance(sampling, dict) else None
        return float(found) if isinstance(found, int | float) else None

    def check_copy(self, root: Path) -> None:
        """Raise ConfigError if `copy_to(root)` would replace anything else than this."""
        check_place(root, self.file.model, self.file.settings)

    def copy_to(self, root: Path) -> None:
        """Write the evaluation to another directory too."""
        directory = EvaluationDirectory(root)
        directory.write_all(self.played.rollouts)
        self.file.write(directory.file)


def saved_side(
    root: Path,
    place: RunConfig,
    asked: Sequence[RolloutRequest],
    *,
    seed: int,
    trust: bool = False,
) -> SavedSide:
    """The evaluation in `root`, which played `asked` in the environment of `place`.

    Raises ConfigError if it is not finished, if it played other tasks, with another seed or in an
    environment with other settings, and for links out of it without `trust`; DamagedFile if its
    files are damaged.
    """
    if not (trust or is_own(root)):
        check_links(root, use="read")
    directory = EvaluationDirectory(root)
    file = directory.read()
    if file is None or file.status != "finished":
        said = "has no evaluation" if file is None else f"has an evaluation that is {file.status}"
        raise ConfigError(f"{root} {said}; only a finished one can be compared with")
    env = make_env(place)
    wanted = plain(masked(what_is_played(env, asked, seed)))
    difference = setting_that_differs({key: file.settings.get(key) for key in wanted}, wanted)
    if difference is not None:
        key, theirs, ours = difference
        raise ConfigError(f"{root} played something else: {key} is {theirs} there, and {ours} here")
    stored = {rollout.session_id: rollout for rollout in directory.rollouts()}
    missing = [request.session_id for request in asked if request.session_id not in stored]
    if missing:
        raise ConfigError(f"{root} lacks {len(missing)} of its {len(asked)} rollouts")
    rollouts = [stored[request.session_id] for request in asked]
    pool = EnvPool(
        None,
        trusted(place),
        [env] if env.needs else (),
    )
    return SavedSide(file, assess_played(rollouts, pool, seed=seed))
