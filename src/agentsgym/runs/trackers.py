"""The trackers of a run (`train.report_to`): their stores are in the run's directory.

A tracker follows its own environment variables, such as WANDB_MODE or MLFLOW_TRACKING_URI. Those
that the user has not set get values here that keep everything on this machine. A configuration
cannot set them, so it cannot name a server.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import ensure, installed

PROJECT = "agentsgym"
"""The project, in MLflow the experiment, of a run that names none in `train.project`."""

TRACKERS: Mapping[str, Callable[[Path, str], Mapping[str, str]]] = {
    "tensorboard": lambda directory, project: {
        "TENSORBOARD_LOGGING_DIR": str(directory / "tensorboard")
    },
    "wandb": lambda directory, project: {
        "WANDB_DIR": str(directory),
        "WANDB_MODE": "offline",
        "WANDB_PROJECT": project,
        "WANDB_ERROR_REPORTING": "false",
    },
    "trackio": lambda directory, project: {"TRACKIO_DIR": str(directory / "trackio")},
    "mlflow": lambda directory, project: {
        "MLFLOW_TRACKING_URI": f"sqlite:///{directory / 'mlflow.db'}",
        "MLFLOW_EXPERIMENT_NAME": project,
        "MLFLOW_DISABLE_TELEMETRY": "true",
    },
}
"""The environment variables for (directory, project) of each tracker whose store a run keeps in its
directory."""


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
    user's environment variables say otherwise.

    Trackio reads its variable when it is imported, as TRL does if it is installed. So the block has
    to begin before TRL is imported.
    """
    report_to = train.get("report_to")
    choice = report_to if isinstance(report_to, list) else [report_to]
    names = [name for name in TRACKERS if installed(name) and (name in choice or "all" in choice)]
    project, root = str(train.get("project") or PROJECT), directory.absolute()
    variables = {k: v for name in names for k, v in TRACKERS[name](root, project).items()}
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
