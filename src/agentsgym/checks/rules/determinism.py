"""The checks that a seed and the actions fix an episode: again, elsewhere, among other sessions, in
trials, and whatever the global generators give."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agentsgym.checks.context import Context
from agentsgym.checks.players import RandomPlayer, Record, difference, play_alone, play_interleaved
from agentsgym.checks.report import Finding
from agentsgym.child_process import python_environment, run_python
from agentsgym.envs.base import MultistepEnv
from agentsgym.types.errors import ConfigError

PROCESS_SECONDS = 120.0


def same_seed(context: Context) -> Finding:
    """The same task and actions give the same episode in a new environment object."""
    tasks = context.tasks(2)
    player = RandomPlayer(context.seed)
    once, again = (play_alone(context.make(None), tasks, player) for _ in range(2))
    parted = first_difference(once, again)
    if parted:
        return Finding("same seed", False, f"played again, {parted}")
    steps = sum(record.steps for record in once)
    return Finding("same seed", True, f"{len(tasks)} tasks, {steps} steps, played twice")


def another_process(context: Context) -> Finding:
    """They also do in another process, where strings hash differently."""
    name = "another process"
    if not context.importable:
        return Finding(name, True, "not played: another process cannot import the class")
    tasks = context.tasks(1, most=4)
    here = play_alone(context.make(None), tasks, RandomPlayer(context.seed, nonsense=0.0))
    env_class = type(context.env)
    request = {
        "path": f"{env_class.__module__}.{env_class.__qualname__}",
        "sys_path": sys.path,
        "env_config": context.env.env_config,
        "tasks": tasks,
        "actions": [record.actions for record in here],
    }
    environment = {**python_environment(), "PYTHONHASHSEED": "12345"}
    try:
        answer = run_python(
            "agentsgym.checks.replay",
            input=json.dumps(request),
            env=environment,
            timeout=PROCESS_SECONDS,
        )
        answer.check_returncode()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return Finding(name, False, f"it failed there: {_tail(error.stderr) or error}")
    digests = json.loads(answer.stdout.splitlines()[-1])
    wrong = [k for k, record in enumerate(here) if record.digest != digests[k]]
    if wrong:
        text = f"{len(wrong)} of {len(here)} episodes differ there, the first on {tasks[wrong[0]]}"
        return Finding(name, False, text[:300])
    return Finding(name, True, f"{len(here)} episodes equal")


def _tail(text: str | bytes | None) -> str:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
    return shown.strip().splitlines()[-1] if shown.strip() else ""


def interleaved(context: Context) -> Finding:
    """Interleaved sessions of one object play as each session does alone in a new object.

    Two sessions play each task, so that state left by one would be visible to the other.
    """
    name = "interleaved"
    tasks = [task for task in context.tasks(8) for _ in range(2)]
    player = RandomPlayer(context.seed)
    alone = [
        play_alone(context.make(None), [task], player, first=number)[0]
        for number, task in enumerate(tasks)
    ]
    shared = context.make(None)
    for way, records in (
        ("one after another in one object", play_alone(shared, tasks, player)),
        ("side by side", play_interleaved(shared, tasks, player, seed=context.seed)),
    ):
        parted = first_difference(alone, records)
        if parted:
            return Finding(name, False, f"{way}, {parted}")
    if shared.active_states:
        return Finding(name, False, f"{len(shared.active_states)} states were not removed")
    return Finding(name, True, f"{len(tasks)} sessions equal to those played alone")


def first_difference(expected: Sequence[Record], got: Sequence[Record]) -> str:
    """The first difference between two plays of the same sessions; "" if they are equal."""
    for number, (one, other) in enumerate(zip(expected, got, strict=True)):
        parted = difference(one, other)
        if parted:
            return f"session {number} differs: {parted}"
    return ""


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


def global_randomness(context: Context) -> Finding:
    """Playing neither changes the global random state nor depends on it."""
    tasks = context.tasks(2, most=4)
    player = RandomPlayer(context.seed)
    kept = {name: read() for name, (read, _) in _generators().items()}
    try:
        records = []
        for seed in (1, 2):
            _seed_all(seed)
            before = {name: read() for name, (read, _) in _generators().items()}
            records.append(play_alone(context.make(None), tasks, player))
            changed = [
                name for name, (read, _) in _generators().items() if _differ(before[name], read())
            ]
            if changed:
                return Finding(
                    "global randomness", False, f"playing changed the state of {', '.join(changed)}"
                )
    finally:
        for name, (_, write) in _generators().items():
            if name in kept:
                write(kept[name])
    for one, other in zip(*records, strict=True):
        parted = difference(one, other)
        if parted:
            return Finding(
                "global randomness", False, f"another global seed changes the episode: {parted}"
            )
    return Finding("global randomness", True, f"{', '.join(_generators())}: unchanged and not used")


def _generators() -> dict[str, tuple[Callable[[], Any], Callable[[Any], None]]]:
    """Functions that read and set each global generator that is loaded."""
    known: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        "random": (random.getstate, random.setstate),
        "numpy.random": (np.random.get_state, np.random.set_state),
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        known["torch"] = (torch.get_rng_state, torch.set_rng_state)
    return known


def _seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(seed)


def _differ(before: Any, after: Any) -> bool:
    if isinstance(before, tuple):
        pairs = zip(before, after, strict=True)
        return any(not np.array_equal(np.asarray(a), np.asarray(b)) for a, b in _flat(pairs))
    return not bool((before == after).all())


def _flat(pairs: Any) -> list[tuple[Any, Any]]:
    return [(a if a is not None else 0, b if b is not None else 0) for a, b in pairs]
