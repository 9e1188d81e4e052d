"""The keys of the exploration games' `env_config`, and the defaults that depend on other keys."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from agentsgym.envs.config import COMMON_KEYS, Key
from agentsgym.envs.exploration.game import FACT_NAMES
from agentsgym.envs.exploration.languages import GAMES

MOST_CHOICES = 64


def _at_most(most: float) -> Any:
    def problem(value: float) -> str | None:
        return None if value <= most else f"must be at most {most}, got {value!r}"

    return problem


def _below_one(value: float) -> str | None:
    return None if value < 1 else f"must be less than 1, got {value!r}"


def _share(default: float, doc: str) -> Key:
    return Key(float, default, doc, minimum=0.0, check=_at_most(1.0))


KEYS: Mapping[str, Key] = {
    "game": Key(str, "place", "what is hidden, and how to find it", choices=tuple(GAMES)),
    "max_steps_per_episode": Key(int, 1, "actions per episode; 1: looking costs it", minimum=1),
    "episodes_per_trial": Key(
        int, 2, "episodes on the same task (switches: a free shot for each switch and 1)", minimum=1
    ),
    "free_shots": Key(
        int, 1, "first episodes that are not scored (by default all but the last)", minimum=0
    ),
    "carry": Key(
        str, "full", COMMON_KEYS["carry"].doc, choices=COMMON_KEYS["carry"].choices
    ),
    "choices": Key(
        int, 8, "possible values of a fact; for switches a power of 2", minimum=2,
        check=_at_most(MOST_CHOICES),
    ),
    "facts": Key(
        int, 1, "hidden facts; each episode asks for one of them", minimum=1,
        check=_at_most(len(FACT_NAMES)),
    ),
    "noise": Key(
        float, 0.0, "probability that the answer to a look is wrong", minimum=0.0, check=_below_one
    ),
    "look_cost": Key(float, 0.0, "cost of each informing action", minimum=0.0),
    "right_reward": Key(float, 1.0, "what the paid action earns if it is right"),
    "wrong_reward": Key(float, 0.0, "what it earns if it is wrong"),
    "teacher_looks": _share(0.15, "share of the teacher's actions that inform it"),
    "teacher_uses": _share(0.7, "share of its other actions that use what it knows"),
    "train_tasks": Key(int, 1024, "number of training tasks", minimum=1),
    "eval_tasks": Key(int, 512, "number of evaluation tasks", minimum=1),
}  # fmt: skip
"""The environment's own keys, and common ones with other defaults."""


def with_trial(given: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the numbers of episodes and free shots that the rest implies.

    Without either number the second of two episodes is scored, with switches the one after as many
    free shots as there are switches. Fewer episodes have fewer free shots, more free shots have
    more episodes.
    """
    episodes, free = given.get("episodes_per_trial"), given.get("free_shots")
    wanted = _switches(given) or 1
    if episodes is None and free is None:
        return {**given} if wanted == 1 else {**_trial(wanted + 1, wanted), **given}
    if episodes is None and _is_int(free) and KEYS["free_shots"].problem(free) is None:
        return {**given, "episodes_per_trial": max(wanted, free) + 1}
    if free is None and _is_int(episodes):
        return {**given, "free_shots": max(0, min(wanted, episodes - 1))}
    return {**given}


def _trial(episodes: int, free: int) -> dict[str, int]:
    return {"episodes_per_trial": episodes, "free_shots": free}


def _switches(given: Mapping[str, Any]) -> int:
    """The number of switches; 0 in other games."""
    choices = given.get("choices", KEYS["choices"].default)
    if given.get("game") != "switches" or not _is_int(choices):
        return 0
    return max(0, choices.bit_length() - 1)


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
