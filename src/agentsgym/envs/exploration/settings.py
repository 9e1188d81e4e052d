"""The settings of the exploration games, and the defaults that depend on other settings."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from agentsgym.envs.exploration.game import FACT_NAMES
from agentsgym.envs.settings import Carry, EnvSettings, Tasks
from agentsgym.types.settings import MOST

_SWITCHES = "switches"
_Share = Annotated[float, Field(ge=0, le=1)]


class ExploreSettings(EnvSettings):
    """Without the number of episodes or of free shots, the second of two episodes is scored, with
    switches the one after as many free shots as there are switches. Fewer episodes have fewer free
    shots, more free shots have more episodes."""

    game: Literal["place", "switches", "rule"] = Field(
        "place", description="what is hidden, and how to find it"
    )
    max_steps_per_episode: int = Field(1, description="actions per episode; 1: looking costs it")
    episodes_per_trial: int = Field(
        2, description="episodes on the same task (switches: a free shot for each switch and 1)"
    )
    free_shots: int = Field(
        1, description="first episodes that are not scored (by default all but the last)"
    )
    carry: Carry = "full"
    choices: int = Field(
        8, ge=2, le=64, description="possible values of a fact; for switches a power of 2"
    )
    facts: int = Field(
        1, ge=1, le=len(FACT_NAMES), description="hidden facts; each episode asks for one of them"
    )
    noise: float = Field(
        0.0, ge=0, lt=1, description="probability that the answer to a look is wrong"
    )
    look_cost: float = Field(0.0, ge=0, description="cost of each informing action")
    right_reward: float = Field(1.0, description="what the paid action earns if it is right")
    wrong_reward: float = Field(0.0, description="what it earns if it is wrong")
    teacher_looks: _Share = Field(0.15, description="share of the teacher's actions that inform it")
    teacher_uses: _Share = Field(
        0.7, description="share of its other actions that use what it knows"
    )
    train_tasks: Tasks = Field(1024, description="number of training tasks")
    eval_tasks: Tasks = Field(512, description="number of evaluation tasks")

    @model_validator(mode="before")
    @classmethod
    def _complete_trial(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        episodes: Any
        free: Any
        episodes, free = values.get("episodes_per_trial"), values.get("free_shots")
        wanted = _switches(values) or 1
        if episodes is None and free is None:
            return {"episodes_per_trial": wanted + 1, "free_shots": wanted, **values}
        if episodes is None and _is_count(free):
            return {**values, "episodes_per_trial": max(wanted, free) + 1}
        if free is None and _is_count(episodes):
            return {**values, "free_shots": max(0, min(wanted, episodes - 1))}
        return values

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if self.game == _SWITCHES and self.choices & (self.choices - 1):
            raise ValueError(f"choices must be a power of 2 for switches, got {self.choices}")
        if self.wrong_reward >= self.right_reward:
            raise ValueError(
                f"wrong_reward must be less than right_reward ({self.right_reward}), got "
                f"{self.wrong_reward}"
            )
        return self


def _switches(values: dict[str, Any]) -> int:
    """The number of switches; 0 in other games."""
    choices = values.get("choices", ExploreSettings.model_fields["choices"].default)
    if values.get("game") != _SWITCHES or not _is_count(choices):
        return 0
    bits: int = choices.bit_length()
    return max(0, bits - 1)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST
