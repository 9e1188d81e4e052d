"""Our loop against that of verifiers 0.4: the same games, answers and latencies, all at once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import common
import scale_game as game
import scale_sessions

HERE = Path(__file__).resolve().parent


def compared(sessions: int, turns: int, tokenizer: str, python: str) -> dict[str, Any]:
    """Both sides' figures, if both played the same turns and earned the same rewards."""
    if not Path(python).exists():
        return {"ours_over_verifiers_why": f"{python} is missing (make test-verifiers makes it)"}
    ours = scale_sessions.measured(scale_sessions.Case(sessions, sessions, turns, tokenizer))
    theirs = _theirs(sessions, turns, python)
    rewards = [
        game.reward(length, scale_sessions.answers(number, length)[-1])
        for number in range(sessions)
        for length in [game.turns(number, turns)]
    ]
    # `scale_sessions` ends without figures unless its own rewards are these.
    common.demand_equal(
        (ours["steps"], rewards), (theirs["steps"], theirs["rewards"]), "turns or rewards"
    )
    our_seconds = ours["steps"] / ours["steps_per_second"]
    our_cpu = ours["overhead_us"] / 1e6 * ours["steps"]
    return {
        "verifiers_sessions": sessions,
        "verifiers_steps": ours["steps"],
        "ours_seconds": round(our_seconds, 2),
        "verifiers_seconds": round(theirs["seconds"], 2),
        "ours_over_verifiers": round(theirs["seconds"] / our_seconds, 1),
        "ours_us": round(ours["overhead_us"], 1),
        "verifiers_us": round(1e6 * theirs["cpu_seconds"] / theirs["steps"], 1),
        "cpu_ours_over_verifiers": round(theirs["cpu_seconds"] / our_cpu, 1),
        "longest_game_seconds": round(_longest(sessions, turns), 2),
    }


def _theirs(sessions: int, turns: int, python: str) -> dict[str, Any]:
    command = [python, "-W", "ignore", "scale_verifiers_side.py", str(sessions), str(turns)]
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=env)
    if done.returncode:
        sys.exit(f"verifiers failed: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _longest(sessions: int, turns: int) -> float:
    """Seconds of the longest game if nothing but its answers took time: no loop is faster."""
    return max(
        sum(game.latency(game.drawn("request", number, turn)) for turn in range(length))
        for number in range(sessions)
        for length in [game.turns(number, turns)]
    )
