"""The checks that a seed fixes the episode: alone, again, elsewhere, and among other sessions."""

import json
import subprocess
import sys
from collections.abc import Sequence

from agentsgym.checks.context import Context
from agentsgym.checks.players import RandomPlayer
from agentsgym.checks.playing import play_alone, play_interleaved
from agentsgym.checks.records import Record, difference
from agentsgym.checks.report import Finding
from agentsgym.child_process import python_environment, run_python

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
