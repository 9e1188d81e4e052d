"""The check that episodes of a trial depend on their own trial alone."""

from agentsgym.checks.context import Context
from agentsgym.checks.players import RandomPlayer
from agentsgym.checks.playing import play_alone, play_interleaved
from agentsgym.checks.report import Finding
from agentsgym.checks.rules.determinism import first_difference
from agentsgym.envs.base import MultistepEnv
from agentsgym.types.errors import ConfigError

EPISODES = 3


def trials(context: Context) -> Finding:
    """Trials of several episodes, side by side in one object, are as each alone in a new one.

    So what `_begin_episode` makes of a trial is fixed by its `TrialInfo`, its task and its actions.
    """
    name = "trials"
    tasks = context.tasks(2 * EPISODES, most=8)
    player = RandomPlayer(context.seed)
    try:
        shared = _of_several_episodes(context)
    except ConfigError as error:
        return Finding(name, True, f"not played: {error}")
    alone = [
        play_alone(_of_several_episodes(context), [task], player, first=number)[0]
        for number, task in enumerate(tasks)
    ]
    together = play_interleaved(shared, tasks, player, seed=context.seed)
    parted = first_difference(alone, together)
    if parted:
        return Finding(name, False, f"side by side, {parted}")
    episodes = shared.config.episodes_per_trial
    return Finding(name, True, f"{len(tasks)} trials of {episodes} episodes equal to each alone")


def _of_several_episodes(context: Context) -> MultistepEnv:
    """A new object: with the configuration's own trials if they have several episodes."""
    env = context.make(None)
    if env.config.episodes_per_trial > 1:
        return env
    trial = {"episodes_per_trial": EPISODES, "free_shots": 1, "carry": "full"}
    return type(env)(None, {**env.env_config, **trial})
