"""The checks that a seed and the actions fix an episode: again, elsewhere, among other sessions,
and whatever the global generators give."""

import pickle
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from agentsgym.checks.context import Context, Failed, Passed
from agentsgym.checks.playing import (
    ActionChoice,
    Task,
    agent_texts,
    difference,
    play_in_turn,
    play_interleaved,
    play_on,
    random_player,
    replay,
    taken,
)
from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.drive import plays_episodes
from agentsgym.rollout.processes.env import hosted
from agentsgym.types import Rollout
from agentsgym.types.names import ConfigError


def same_seed(context: Context) -> Passed:
    """The same task and actions give the same episode in a new environment object, also one that
    is brought to its middle by repeating what was done: then the environment can be branched."""
    tasks = context.tasks(3)
    player = random_player(context.seed)
    once, again = (play_in_turn(context.make(None), tasks, player) for _ in range(2))
    compare("played again", once, again)
    compare("played on from its middle", once, play_on(context.make(None), once, player))
    steps = sum(len(taken(rollout)) for rollout in once)
    branches = "it can be branched"
    if plays_episodes(context.env):
        branches = "it plays its episodes itself, so it cannot be branched"
    return Passed(f"{len(tasks)} tasks, {steps} steps, played twice; {branches}")


def another_process(context: Context) -> Passed:
    """They also do in another process, where strings hash differently."""
    module = type(context.env).__module__
    if getattr(sys.modules[module], "__spec__", None) is None:  # a main script, or made by hand
        return Passed(f"not played: another process cannot import {module}")
    tasks = context.tasks(1, most=4)
    here = play_in_turn(context.make(None), tasks, random_player(context.seed, nonsense=0.0))
    try:
        env = hosted(type(context.env)(None, {**context.env.env_config, "workers": 1}))
    except ConfigError as error:
        return Passed(f"not played: {error}")
    there = play_in_turn(env, tasks, replay([agent_texts(rollout) for rollout in here]))
    compare("there", here, there)
    return Passed(f"{len(here)} episodes equal")


def interleaved(context: Context) -> Passed:
    """Interleaved sessions of one object play as each session does alone in a new object, also in
    trials of several episodes.

    Two sessions play each task, so that state left by one would be visible to the other. In trials,
    what `_begin_episode` makes of one is fixed by its `TrialInfo`, its task and its actions.
    """
    tasks = [task for task in context.tasks(8 + EPISODES) for _ in range(2)]
    player = random_player(context.seed)
    texts = []
    makers = (partial(context.make, None), partial(_of_several_episodes, context))
    for make in makers:
        try:
            shared = make()
        except ConfigError as error:
            texts.append(f"no trials: {error}")
            break
        alone = _alone(make, tasks, player)
        compare("one after another in one object", alone, play_in_turn(shared, tasks, player))
        together = play_interleaved(shared, tasks, player, seed=context.seed)
        compare("side by side", alone, together)
        if shared.active_states:
            raise Failed(f"{len(shared.active_states)} states were not removed")
        episodes = shared.config.episodes_per_trial
        texts.append(f"{len(tasks)} sessions of {episodes} episodes equal to those played alone")
    return Passed("; ".join(dict.fromkeys(texts)))


def _alone(
    make: Callable[[], MultistepEnv], tasks: Sequence[Task], player: ActionChoice
) -> list[Rollout]:
    """One trial of each task, each in a new object."""
    return [play_in_turn(make(), [task], player, first=n)[0] for n, task in enumerate(tasks)]


def compare(how: str, expected: Sequence[Rollout], got: Sequence[Rollout]) -> None:
    """Raise Failed with the first difference between two plays of the same sessions; `how` says in
    which way the second one was played."""
    for number, (one, other) in enumerate(zip(expected, got, strict=True)):
        parted = difference(one, other)
        if parted:
            raise Failed(f"{how}, session {number} differs: {parted}")


EPISODES = 3


def _of_several_episodes(context: Context) -> MultistepEnv:
    """A new object: with the configuration's own trials if they have several episodes."""
    env = context.make(None)
    if env.config.episodes_per_trial > 1:
        return env
    trial = {"episodes_per_trial": EPISODES, "free_shots": 1, "carry": "full"}
    return type(env)(None, {**env.env_config, **trial})


@dataclass(frozen=True, slots=True)
class _Generator:
    """A global random generator: functions that read, set and seed it."""

    read: Callable[[], Any]
    write: Callable[[Any], None]
    seed: Callable[[int], Any]


def global_randomness(context: Context) -> Passed:
    """Playing neither changes the global random state nor depends on it."""
    tasks = context.tasks(2, most=4)
    player = random_player(context.seed)
    kept = {which: one.read() for which, one in _generators().items()}
    played = []
    try:
        for seed in (1, 2):
            for one in _generators().values():
                one.seed(seed)
            before = {which: pickle.dumps(one.read()) for which, one in _generators().items()}
            played.append(play_in_turn(context.make(None), tasks, player))
            now = _generators()
            changed = [w for w, state in before.items() if pickle.dumps(now[w].read()) != state]
            if changed:
                raise Failed(f"playing changed the state of {', '.join(changed)}")
    finally:
        for which, state in kept.items():
            _generators()[which].write(state)
    compare("with another global seed", *played)
    return Passed(f"{', '.join(_generators())}: unchanged and not used")


def _generators() -> Mapping[str, _Generator]:
    """Each global generator that is loaded."""
    known = {
        "random": _Generator(random.getstate, random.setstate, random.seed),
        "numpy.random": _Generator(np.random.get_state, np.random.set_state, np.random.seed),
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        known["torch"] = _Generator(
            lambda: torch.get_rng_state().numpy(),
            lambda state: torch.set_rng_state(torch.from_numpy(state)),
            torch.manual_seed,
        )
    return known
