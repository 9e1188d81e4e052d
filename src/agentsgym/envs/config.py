"""What an environment's `env_config` may hold, and the errors for what it may not."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentsgym.types.plain import short_repr
from agentsgym.types.visible import visible

NEEDS = "needs"
"""Key that marks the `env_config` of rows which only one object can play (`MultistepEnv.needs`)."""

NONE_HINT = (
    " (a dataset whose columns are Arrow structs fills the keys of other rows with None: make "
    "the columns datasets.Json(), as agentsgym.task_dataset does)"
)


class ConfigError(ValueError):
    """A key or value of a configuration that is not allowed; the message names both."""

    def __init__(self, message: str = "") -> None:
        super().__init__(visible(message))


@dataclass(frozen=True, slots=True)
class Key:
    """One key of an `env_config`.

    `kind` is the accepted type (a bool is no int here, an int is a float, NaN and infinities are
    nothing); `choices` lists the only allowed values; `minimum` bounds numbers from below; `check`
    returns what is wrong with a value, or None. A key whose default is None accepts None.
    `is_path` says that the value is a file or folder: a dataset row may only name one that the
    caller allows (see `row_paths`).
    """

    kind: type | tuple[type, ...]
    default: Any = None
    doc: str = ""
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    check: Callable[[Any], str | None] | None = None
    is_path: bool = False

    def problem(self, value: Any) -> str | None:
        """What is wrong with `value`, or None."""
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
        except Exception as error:  # a check that did not expect such a value
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
    except OverflowError:  # an int beyond all floats
        return False


COMMON_KEYS: dict[str, Key] = {
    "max_steps_per_episode": Key(int, 20, "actions per episode", minimum=1),
    "episodes_per_trial": Key(int, 1, "episodes on the same task", minimum=1),
    "free_shots": Key(int, 0, "first episodes of a trial that are not scored", minimum=0),
    "error_allowance": Key(int, 1, "consecutive malformed actions that are forgiven", minimum=0),
    "system_prompt": Key(str, None, "system message before the first prompt"),
    "reward_placement": Key(
        str,
        "spread",
        "how a step's reward lies on its agent tokens in per_token_rewards",
        choices=("spread", "broadcast", "last_token"),
    ),
    "final_reward": Key(
        str,
        "last_step",
        "where per_token_rewards show the episode's reward",
        choices=("last_step", "repeat", "spread"),
    ),
    "carry": Key(
        str,
        "none",
        "what an episode sees of the trial's earlier ones",
        choices=("none", "full", "summary"),
    ),
    "reflection_tokens": Key(int, 128, "token cap of a reflection (carry='summary')", minimum=1),
    "malformed_penalty": Key(float, 0.0, "taken off the reward of a malformed action", minimum=0),
    "workers": Key(int, 0, "processes that play the episodes (0: this process)", minimum=0),
    "worker_timeout": Key(
        float, 120.0, "seconds for one answer of a worker, before it is replaced", minimum=0.001
    ),
}


def resolve(env_name: str, keys: Mapping[str, Key], given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in defaults and check everything.

    Raises ConfigError naming the environment, the key, the value, and what is allowed.
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
    return values


def _refuse_unknown(env_name: str, keys: Mapping[str, Key], given: Mapping[str, Any]) -> None:
    if NEEDS in given and NEEDS not in keys:
        raise ConfigError(
            f"{env_name}: these tasks are played by one object alone, for it has "
            f"{short_repr(given[NEEDS])}, which a row cannot carry: hand that object over with "
            "envs=[env] (GRPOEnvTrainer, evaluate, EnvPool)"
        )
    unknown = sorted((name for name in given if name not in keys), key=str)
    if unknown:
        hint = NONE_HINT if given[unknown[0]] is None else ""
        raise ConfigError(
            f"{env_name}: unknown env_config key {short_repr(unknown[0])}; allowed keys are "
            f"{', '.join(sorted(keys))}{hint}"
        )
