"""Any environment with `reset() -> text` and `step(text)`, played as one of ours.

GEM, skyrl-gym and most environments of one's own have this shape. A subclass of `TextGymEnv` makes
the foreign environment of a task; what the calls return is read as they all do it."""

import contextlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from agentsgym.envs.dataset import SeedTasks
from agentsgym.envs.randomness import GlobalRandomness
from agentsgym.envs.settings import EnvSettings, Tasks
from agentsgym.types.foreign import checked_number, checked_truth
from agentsgym.types.text import short_repr

__all__ = ["TextGymEnv", "TextGymError"]


class TextGymError(ValueError):
    """The foreign environment answered with something that has no place in a text conversation."""


@dataclass(slots=True)
class RunningGym:
    """An episode: the foreign environment, its random numbers, and its last text."""

    gym: Any
    randomness: GlobalRandomness | None
    text: str = ""


class TextGymEnv(SeedTasks):
    """An environment of another library; a subclass defines `make_gym`.

    `task_data["seed"]` seeds the foreign environment: as the argument `seed` of its `reset`, if it
    has one, and through the global generators, which it gets for itself (`own_randomness`).
    Datasets are seeds, `train_tasks` and `eval_tasks` of them; an environment whose tasks are data
    overrides `get_train_dataset` and `get_eval_dataset`. The `info` of the foreign environment is
    in `info["gym"]`. A last step that earns at least `win_reward` is a win.
    """

    own_randomness: ClassVar[bool] = True
    """Whether every session has its own state of `random` and `numpy.random` while its environment
    runs. It costs 50 microseconds a call, and one session at a time can run. Set it to False for an
    environment that uses neither."""

    class Settings(EnvSettings):
        """The settings of an environment with `reset` and `step`."""

        train_tasks: Tasks = Field(256, description="number of training seeds")
        eval_tasks: Tasks = Field(64, description="number of evaluation seeds")
        win_reward: float = Field(
            1.0, description="reward of the last step from which on it is a win"
        )

    config: Settings

    # -- what a subclass overrides --------------------------------------------------------------

    def make_gym(self, task_data: Mapping[str, Any]) -> Any:
        """A new foreign environment for an episode of this task. It has `step(text)`, and either
        `reset()` or skyrl-gym's `init(prompt)`; its `close()`, if it has one, ends it."""
        raise NotImplementedError(f"{self.name} must define make_gym")

    def text_of(self, observation: Any, info: Mapping[str, Any]) -> str:
        """The agent's prompt for an observation: the text itself, or the texts of a list of
        messages. Raises TextGymError for anything else."""
        if isinstance(observation, str):
            return observation
        if isinstance(observation, list | tuple):
            return "\n\n".join(map(_content, observation))
        raise TextGymError(f"an observation must be text, got {short_repr(observation)}")

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> RunningGym:
        randomness = GlobalRandomness(task_data.get("seed", 0)) if self.own_randomness else None
        with _drawing_from(randomness):
            gym = self.make_gym(task_data)
            state = RunningGym(gym, randomness)
            try:
                observation, info = _started(gym, task_data)
                state.text = self.text_of(observation, info)
            except BaseException:
                _close(gym)
                raise
        return state

    def _format_prompt(self, state: RunningGym, step: int) -> str:
        return state.text

    def _step_episode(
        self, session_id: str, state: RunningGym, action: str
    ) -> tuple[RunningGym, float, bool, dict[str, Any]]:
        with _drawing_from(state.randomness):
            observation, reward, terminated, truncated, gym_info = _answer(state.gym.step(action))
            state.text = self.text_of(observation, gym_info or {})
        info: dict[str, Any] = {"gym": dict(gym_info or {})}
        terminated = checked_truth(terminated, "terminated")
        truncated = checked_truth(truncated, "truncated")
        done = terminated or truncated
        if done:
            info["win"] = checked_number(reward, "reward") >= self.config.win_reward
        if truncated and not terminated:
            info["stop_reason"] = "truncated"
        return state, reward, done, info

    def _end_episode(self, session_id: str, state: RunningGym) -> None:
        with _drawing_from(state.randomness):
            _close(state.gym)

    # -- tasks ----------------------------------------------------------------------------------

    def check_task(self, task_data: Mapping[str, Any]) -> str | None:
        """A `seed` must be a whole number from 0."""
        seed = task_data.get("seed", 0)
        if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0:
            return None
        return f"'seed' must be a whole number from 0, got {short_repr(seed)}"


def _answer(returned: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
    """What a foreign `step` returned: observation, reward, terminated, truncated, info."""
    if isinstance(returned, Mapping) and {"observations", "reward", "done"} <= set(returned):
        metadata = returned.get("metadata") or {}
        return returned["observations"], returned["reward"], returned["done"], False, metadata
    if isinstance(returned, tuple) and len(returned) == 5:
        return returned
    if isinstance(returned, tuple) and len(returned) == 4:
        observation, reward, done, info = returned
        return observation, reward, done, False, info
    raise TextGymError(
        "step must return (observation, reward, done, info), (observation, reward, terminated, "
        "truncated, info) or a dict with observations, reward and done; got "
        f"{short_repr(returned)}"
    )


def _started(gym: Any, task_data: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """The first observation and its info."""
    if not hasattr(gym, "reset"):
        returned = gym.init(task_data.get("prompt", []))
    elif _takes_seed(gym.reset) and "seed" in task_data:
        returned = gym.reset(seed=task_data["seed"])
    else:
        returned = gym.reset()
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
        return returned
    return returned, {}


def _takes_seed(reset: Any) -> bool:
    parameters = inspect.signature(reset).parameters.values()
    return any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters)


def _content(message: Any) -> str:
    role = message.get("role") if isinstance(message, Mapping) else None
    text = message.get("content") if isinstance(message, Mapping) else None
    if role not in ("system", "user") or not isinstance(text, str):
        raise TextGymError(
            "an observation may have messages of the roles system and user with text, got "
            f"{short_repr(message)}"
        )
    return text


def _drawing_from(randomness: GlobalRandomness | None) -> Any:
    return contextlib.nullcontext() if randomness is None else randomness.installed()


def _close(gym: Any) -> None:
    close = getattr(gym, "close", None)
    if callable(close):
        close()
