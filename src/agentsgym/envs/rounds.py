"""What an environment may know of the trial that an episode belongs to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsgym.envs.base import MultistepEnv


def earlier_state(
    env: "MultistepEnv", session_id: str, fresh: dict[str, Any], task_keys: Sequence[str]
) -> Any:
    """The last state of the trial's episode before the one that begins with `fresh`; else None.

    States are mappings with the number of their `episode`; `task_keys` are the entries that are
    equal in all episodes of a task.
    """
    earlier = env.active_states.get(session_id)
    if earlier is None or earlier["episode"] + 1 >= env.config["episodes_per_trial"]:
        return None
    return earlier if all(earlier[key] == fresh[key] for key in task_keys) else None


def round_line(env: "MultistepEnv", episode: int, same: str) -> str:
    """Where a trial stands ("Round 2 of 3, scored, same code."), for an agent that knows its
    earlier episodes; empty where it knows none. `same` names what stays ("same code")."""
    episodes = env.config["episodes_per_trial"]
    if env.config["carry"] == "none" or episodes == 1:
        return ""
    kind = "practice" if episode < env.config["free_shots"] else "scored"
    return f"Round {episode + 1} of {episodes}, {kind}{f', {same}' if episode else ''}."
