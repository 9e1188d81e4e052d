"""The trackers of a run (`train.report_to`): their stores are in the run's directory.

A tracker follows its own environment variables, such as WANDB_MODE or MLFLOW_TRACKING_URI. Those
that the user has not set get values here that keep everything on this machine. A configuration
cannot set them, so it cannot name a server.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import ensure, installed

logger = logging.getLogger(__name__)

PROJECT = "agentsgym"
"""The project, in MLflow the experiment, of a run that names none in `train.project`."""


@dataclass(frozen=True, slots=True)
class Tracker:
    """How a tracker is kept in the run's directory.

    `variables` returns its environment variables for (directory, project), `prepare` is called with
    the same before training, `finish` when the run has ended, in whatever way.
    """

    variables: Callable[[Path, str], Mapping[str, str]]
    prepare: Callable[[Path, str], None] = lambda directory, project: None
    finish: Callable[[], None] = lambda: None


def _tensorboard(directory: Path, project: str) -> Mapping[str, str]:
    return {"TENSORBOARD_LOGGING_DIR": str(directory / "tensorboard")}


def _wandb(directory: Path, project: str) -> Mapping[str, str]:
    return {
        "WANDB_DIR": str(directory),
        "WANDB_MODE": "offline",
        "WANDB_PROJECT": project,
        "WANDB_ERROR_REPORTING": "false",
    }


def _finish_wandb() -> None:
    import wandb

    wandb.finish()


def _trackio(directory: Path, project: str) -> Mapping[str, str]:
    return {"TRACKIO_DIR": str(directory / "trackio")}


def _finish_trackio() -> None:
    import trackio

    if trackio.context_vars.current_run.get() is not None:
        trackio.finish()


def _mlflow(directory: Path, project: str) -> Mapping[str, str]:
    return {
        "MLFLOW_TRACKING_URI": f"sqlite:///{directory / 'mlflow' / 'mlflow.db'}",
        "MLFLOW_EXPERIMENT_NAME": project,
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def _prepare_mlflow(directory: Path, project: str) -> None:
    """Make the experiment; MLflow itself would put its artifacts into the current directory."""
    folder = directory / "mlflow"
    if os.environ["MLFLOW_TRACKING_URI"] != _mlflow(directory, project)["MLFLOW_TRACKING_URI"]:
        return
    import mlflow

    folder.mkdir(parents=True, exist_ok=True)
    name = os.environ["MLFLOW_EXPERIMENT_NAME"]
    if mlflow.get_experiment_by_name(name) is None:
        mlflow.create_experiment(name, (folder / "artifacts").as_uri())


def _finish_mlflow() -> None:
    import mlflow

    if mlflow.active_run() is not None:
        mlflow.end_run("FAILED")


TRACKERS: Mapping[str, Tracker] = {
    "tensorboard": Tracker(_tensorboard),
    "wandb": Tracker(_wandb, finish=_finish_wandb),
    "trackio": Tracker(_trackio, finish=_finish_trackio),
    "mlflow": Tracker(_mlflow, _prepare_mlflow, _finish_mlflow),
}
"""The trackers whose stores a run keeps in its directory, by their names in `report_to`."""


def named_trackers(train: Mapping[str, Any]) -> list[str]:
    """The trackers of `TRACKERS` that a section `train` names in `report_to`."""
    given = train.get("report_to")
    names = given if isinstance(given, list) else [given]
    if "all" in names:
        return [name for name in TRACKERS if installed(name)]
    return [name for name in TRACKERS if name in names]


def check_trackers(names: Sequence[str]) -> None:
    """Raise ConfigError for a name in `report_to` that transformers does not know, MissingExtra for
    a tracker of `TRACKERS` that is not installed."""
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            raise ConfigError(
                f"train.report_to: {name!r} is no tracker; there are "
                f"{', '.join(sorted(INTEGRATION_TO_CALLBACK))}, all and none"
            )
        if name in TRACKERS:
            ensure(name, name)


@contextmanager
def stores_in(directory: Path, train: Mapping[str, Any]) -> Iterator[None]:
    """Inside the block, the trackers of a section `train` write below `directory`, unless the
    user's environment variables say otherwise. An error at a tracker's end is logged: the training
    before it stands.

    Trackio reads its variable when it is imported, as TRL does if it is installed. So the block has
    to begin before TRL is imported.
    """
    names = named_trackers(train)
    project, root = str(train.get("project") or PROJECT), directory.absolute()
    added: dict[str, str] = {}
    for name in names:
        for variable, value in TRACKERS[name].variables(root, project).items():
            if variable not in os.environ:
                added[variable] = value
    os.environ.update(added)
    try:
        yield
    finally:
        for name in names:
            if name in sys.modules:
                _finish(name)
        for variable in added:
            os.environ.pop(variable, None)


def _finish(name: str) -> None:
    try:
        TRACKERS[name].finish()
    except Exception as error:  # a tracker may raise anything
        logger.warning("%s could not be ended: %s", name, error)


def prepare(directory: Path, train: Mapping[str, Any]) -> None:
    """Make what a tracker needs in the run's directory before training; inside `stores_in`."""
    project = str(train.get("project") or PROJECT)
    for name in named_trackers(train):
        TRACKERS[name].prepare(directory.absolute(), project)
