"""The entry point of Inspect: `agentsgym/NAME` for every registered environment, and
`agentsgym/env` for one by its dotted path."""

from collections.abc import Callable
from typing import Any

from inspect_ai import Task, task
from inspect_ai.util import registry_info

from agentsgym.envs import registered

_PACKAGE = "agentsgym/"


def _by_name(name: str) -> Callable[..., Task]:
    def make_task(tasks: Any = "eval", **env_config: Any) -> Task:
        from agentsgym.integrations.inspect.task import env_task

        return env_task(name, tasks, env_config)

    make_task.__doc__ = f"{name}; settings of the environment are arguments."
    return _registered(name, make_task)


def _by_path(path: str, tasks: Any = "eval", **env_config: Any) -> Task:
    """An environment of the user's own: `-T path=my_module.MyEnv`, a module in this directory."""
    from agentsgym.integrations.inspect.task import env_task
    from agentsgym.types import with_modules_of
    from agentsgym.types.trust import import_from_here

    import_from_here(path)
    return env_task(path, tasks, env_config, trust=with_modules_of(False, path))


def _registered(name: str, make_task: Callable[..., Task]) -> Callable[..., Task]:
    """Inspect puts the package's name first only where it sees that the package is installed."""
    made: Callable[..., Task] = task(name=name)(make_task)
    if not registry_info(made).name.startswith(_PACKAGE):
        made = task(name=f"{_PACKAGE}{name}")(make_task)
    return made


TASKS = {name: _by_name(name) for name in registered()} | {"env": _registered("env", _by_path)}
"""The tasks by their names after `agentsgym/`."""
