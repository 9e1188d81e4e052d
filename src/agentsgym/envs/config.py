"""The keys of an environment's `env_config`, their checks, and the errors for bad values."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentsgym.types.errors import ConfigError
from agentsgym.types.reward_placement import (
    FINAL_REWARDS,
    REWARD_PLACEMENTS,
    FinalReward,
    RewardPlacement,
)
from agentsgym.types.text import short_repr

NEEDS = "needs"
"""Key that marks the `env_config` of rows that only one object can play (`MultistepEnv.needs`)."""

NONE_HINT = (
    " (in a dataset whose columns are Arrow structs, the keys of other rows become None: make "
    "the columns datasets.Json(), as agentsgym.task_dataset does)"
)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of an `env_config`.

    `kind` is the accepted type: a bool is not an int, an int is also a float, NaN and infinities
    are never accepted. `choices` lists the only allowed values; `minimum` is the lower bound of
    numbers; `check` returns the problem with a value, or None. A key whose default is None accepts
    None. `is_path` marks a file or folder, `reaches` a server's address or what is sent there as a
    key: what dataset rows may name is in `row_guard`.
    """

    kind: type | tuple[type, ...]
    default: Any = None
    doc: str = ""
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    check: Callable[[Any], str | None] | None = None
    is_path: bool = False
    reaches: bool = False

    def problem(self, value: Any) -> str | None:
        """The problem with `value`, or None."""
        if value is None and self.default is None:
            return None
        if not self._fits(value):
            return f"must be {self._kind_name()}, got {short_repr(value)}"
        if isinstance(value, float | int) and not _is_finite(value):
            return f"must be a finite number, got {short_repr(value)}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(map(repr, self.choices))}, got {short_repr(value)}"
        if self.minimum is not None and value < self.minimum:
            return f"must be at least {self.minimum}, got {short_repr(value)}"
        return self._checked(value) if self.check else None

    def _checked(self, value: Any) -> str | None:
        assert self.check is not None
        try:
            return self.check(value)
        except Exception as error:  # the check did not expect such a value
            return f"cannot be {short_repr(value)} ({type(error).__name__})"

    def _kinds(self) -> tuple[type, ...]:
        return self.kind if isinstance(self.kind, tuple) else (self.kind,)

    def _fits(self, value: Any) -> bool:
        kinds = self._kinds()
        if isinstance(value, bool):
            return bool in kinds
        return isinstance(value, kinds) or (float in kinds and isinstance(value, int))

    def _kind_name(self) -> str:
        return " or ".join(kind.__name__ for kind in self._kinds())


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an int larger than every float
        return False


def _explained(doc: str, entries: Mapping[str, RewardPlacement | FinalReward]) -> str:
    return f"{doc}: " + "; ".join(f"{entry.name!r} {entry.help}" for entry in entries.values())


def problem_of_resources(resources: Mapping[Any, Any]) -> str | None:
    """What is wrong with the resources that an actor shall reserve; None if nothing is."""
    for name, amount in resources.items():
        if not isinstance(name, str) or not name:
            return f"must have names of resources as keys, got {short_repr(name)}"
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount >= 0:
            return f"must have amounts of at least 0, got {short_repr(amount)} for {name!r}"
    return None


def place_of(config: Mapping[str, Any]) -> str:
    """Where the episodes of an environment with this configuration are played."""
    return config["place"] or ("processes" if config["workers"] else "here")


COMMON_KEYS: dict[str, Key] = {
    "max_steps_per_episode": Key(int, 20, "actions per episode", minimum=1),
    "episodes_per_trial": Key(int, 1, "episodes on the same task", minimum=1),
    "free_shots": Key(int, 0, "first episodes of a trial that are not scored", minimum=0),
    "error_allowance": Key(int, 1, "consecutive malformed actions that are forgiven", minimum=0),
    "explain_actions": Key(
        bool,
        True,
        "whether the first prompt of an episode says the form of an action, with a legal example",
    ),
    "system_prompt": Key(str, None, "system message before the first prompt"),
    "reward_placement": Key(
        str,
        "spread",
        _explained(
            "how a step's reward is put on its agent tokens in per_token_rewards", REWARD_PLACEMENTS
        ),
        choices=tuple(REWARD_PLACEMENTS),
    ),
    "final_reward": Key(
        str,
        "last_step",
        _explained("which reward the steps show in per_token_rewards", FINAL_REWARDS),
        choices=tuple(FINAL_REWARDS),
    ),
    "carry": Key(
        str,
        "none",
        "what an episode shows of the trial's earlier episodes",
        choices=("none", "full", "summary"),
    ),
    "reflection_tokens": Key(int, 128, "token cap of a reflection (carry='summary')", minimum=1),
    "malformed_penalty": Key(
        float,
        0.0,
        "subtracted from the reward of a malformed action, also in free shots",
        minimum=0,
    ),
    "place": Key(
        str,
        None,
        "where the episodes are played: 'here' (this process), 'processes' of this machine, or "
        "actors of a 'ray' cluster; None means processes if there are `workers`",
        choices=("here", "processes", "ray"),
    ),
    "workers": Key(int, 0, "processes or actors that play the episodes", minimum=0),
    "worker_resources": Key(
        dict,
        None,
        "what each actor of a Ray cluster reserves: num_cpus (None: 1), num_gpus, memory in bytes, "
        "or a resource of its own name",
        check=problem_of_resources,
    ),
    "worker_timeout": Key(
        float, 120.0, "seconds to wait for a worker's answer before replacing it", minimum=0.001
    ),
}


def resolve(env_name: str, keys: Mapping[str, Key], given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in defaults and check all values.

    Raises ConfigError with the environment, the key, the value, and the allowed values.
    """
    _refuse_unknown(env_name, keys, given)
    values = {name: given.get(name, key.default) for name, key in keys.items()}
    for name, key in keys.items():
        problem = key.problem(values[name])
        if problem:
            hint = NONE_HINT if values[name] is None else ""
            raise ConfigError(f"{env_name}: env_config[{name!r}] {problem}{hint}")
    if values["free_shots"] >= values["episodes_per_trial"]:
        raise ConfigError(
            f"{env_name}: env_config['free_shots'] must be less than episodes_per_trial "
            f"({values['episodes_per_trial']}), got {values['free_shots']}"
        )
    if place_of(values) != "here" and not values["workers"]:
        raise ConfigError(
            f"{env_name}: env_config['place']={values['place']!r} needs env_config['workers'], "
            "above 0"
        )
    return values


def _refuse_unknown(env_name: str, keys: Mapping[str, Key], given: Mapping[str, Any]) -> None:
    if NEEDS in given and NEEDS not in keys:
        raise ConfigError(
            f"{env_name}: only one object can play these tasks because it has "
            f"{short_repr(given[NEEDS])}, which a row cannot contain: pass that object with "
            "envs=[env] (GRPOEnvTrainer, evaluate, EnvPool)"
        )
    unknown = sorted((name for name in given if name not in keys), key=str)
    if unknown:
        hint = NONE_HINT if given[unknown[0]] is None else ""
        raise ConfigError(
            f"{env_name}: unknown env_config key {short_repr(unknown[0])}; allowed keys are "
            f"{', '.join(sorted(keys))}{hint}"
        )
