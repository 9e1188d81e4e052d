"""The Ray cluster that this process uses, and what an actor reserves there."""

import logging
import os
import socket
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from agentsgym.envs.extras import require
from agentsgym.types.errors import ConfigError

REACH_SECONDS = 10.0
"""Seconds in which the address of a cluster must accept a connection."""
_NO_CLUSTER = "ray.workers is set, but this process has no Ray cluster"
_WHAT_TO_DO = (
    "Start one (`ray start --head`) and set RAY_ADDRESS to its HOST:PORT, or to auto for the one "
    "of this machine"
)
_OWN_OPTIONS = ("num_cpus", "num_gpus", "memory")


def ray_package() -> ModuleType:
    """The package. Raises MissingExtra."""
    return require("ray", "ray")


def connect() -> None:
    """Connect this process to the Ray cluster of RAY_ADDRESS, unless `ray.init` has connected it.
    No cluster is started or looked for.

    Raises ConfigError if there is none, MissingExtra if Ray is not installed.
    """
    ray = ray_package()
    if ray.is_initialized():
        return
    try:
        address = os.environ["RAY_ADDRESS"]
        _reach(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except KeyError:
        raise ConfigError(f"{_NO_CLUSTER}: RAY_ADDRESS is not set. {_WHAT_TO_DO}") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{_NO_CLUSTER}: {type(error).__name__} at {address}: {error}. {_WHAT_TO_DO}"
        ) from error


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT: `ray.init` would try it for five minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()


def actor_options(resources: Mapping[str, float]) -> dict[str, Any]:
    """Ray's options of an actor that reserves `resources` and may run on any node."""
    options: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
    options |= {n: resources[n] for n in _OWN_OPTIONS if n in resources}
    return options | {"resources": {n: v for n, v in resources.items() if n not in _OWN_OPTIONS}}


def cluster_size() -> str:
    """The cluster's CPUs and GPUs, in words."""
    resources = ray_package().cluster_resources()
    return ", ".join(f"{name} {resources[name]:g}" for name in ("CPU", "GPU") if name in resources)
