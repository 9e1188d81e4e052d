"""What of a taskset cannot be kept when our environment plays it, by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.v1.utils.decorators import discover_decorated

from agentsgym.types.text import short_repr

_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens")


class CannotKeep(ValueError):
    """A taskset needs something that an environment of agentsgym does not have."""


def only_seat(config: Any, seats: Mapping[str, Any]) -> str:
    """The name of the only agent. Raises CannotKeep for several, and for limits of their own."""
    name = config.taskset.id
    if len(seats) != 1:
        raise CannotKeep(f"taskset {name!r} has several seats ({', '.join(seats)}); one is allowed")
    ((seat, agent),) = seats.items()
    limits = [limit for limit in _LIMITS if getattr(agent, limit) is not None]
    if limits:
        raise CannotKeep(
            f"seat {seat!r} of taskset {name!r} has the limit {limits[0]}; use "
            "max_steps_per_episode and max_rollout_tokens"
        )
    return seat


def check_taskset(taskset: Any) -> None:
    """Raise CannotKeep for a taskset with tools, or whose tasks need a container."""
    config, task_type = taskset.config, type(taskset).task_type()
    if taskset.toolsets(config) or task_type.toolsets(config.task):
        raise CannotKeep(f"taskset {config.id!r} has tools")
    if task_type.NEEDS_CONTAINER:
        raise CannotKeep(f"taskset {config.id!r} needs a container")


def check_task(task: Any) -> None:
    """Raise CannotKeep for a task with hooks on model calls, or whose prompt is more than text."""
    name = type(task).__name__
    stops = [hook.__name__ for hook in task.hooks("stop")]
    if stops:
        raise CannotKeep(f"{name} has the stop hook {stops[0]!r}")
    intercepts = [hook.__name__ for hook in discover_decorated(task, "intercept")]
    if intercepts:
        raise CannotKeep(f"{name} has the intercept hook {intercepts[0]!r}")
    if task.data.image is not None:
        raise CannotKeep(f"{name} needs the Docker image {task.data.image!r}")
    if task.data.skills:
        raise CannotKeep(f"{name} has skills")
    if isinstance(task.data.prompt, list):
        for message in task.data.prompt:
            text_of(message.model_dump(mode="json", exclude_none=True), ("system", "user"))


def new_text(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> str:
    """What a conversation has beyond `before` (which ends with the agent's answer), as one text.

    Raises CannotKeep if it does not begin with `before`, or has anything but text that the user or,
    at its beginning, the system said.
    """
    if list(now[: len(before)]) != list(before):
        raise CannotKeep("the environment rewrites the conversation's history")
    roles = ("user",) if before else ("system", "user")
    return "\n\n".join(text_of(message, roles) for message in now[len(before) :])


def text_of(message: Mapping[str, Any], roles: Sequence[str]) -> str:
    """The text of a message of one of these roles; else CannotKeep."""
    content = message["content"] if message["role"] in roles else None
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = "\n".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise CannotKeep(
            f"only text of the roles {' and '.join(roles)} can be shown here, got "
            f"{short_repr(message)}"
        )
    return content
