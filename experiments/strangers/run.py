"""Do games of strangers learn with a run file of two lines, `env` and `model: tiny`?

    python experiments/strangers/run.py                       # twelve games, three seeds each
    python experiments/strangers/run.py maze quiz --seeds 0   # some of them
    python experiments/strangers/run.py --table               # only what there is

Each run is `agentsgym train FILE` in a process of its own, as a user starts it, one after the
other. What it reached stands as a JSON line in `runs/strangers/results.jsonl` (`--output`); a game
and seed that stand there are not run again. `way` is the share of the way from the best constant
action (0) to the best play (1) that the trained model goes on held-out tasks, sampled at
temperature 1; `started` is the same before RL, after the warm start. More settings of the run may
follow as KEY=VALUE; use another `--output` for them.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from yardsticks import GAMES, TUNED, best, constant, made

HERE = Path(__file__).parent
LEARNED, MINUTES = 0.7, 10.0


def train(name: str, seed: int, folder: Path, settings: list[str]) -> dict[str, Any]:
    """One run, and its line."""
    file = folder / f"{name}.yaml"
    file.write_text(f"env: {GAMES[name]}\nmodel: tiny\n")
    command = [sys.executable, "-m", "agentsgym", "train", str(file)]
    command += [f"seed={seed}", f"warm_start.seed={seed}", *settings]
    output = folder / f"{name}-{seed}"
    begun = time.monotonic()
    with (folder / f"{name}-{seed}.log").open("w") as log:
        ended = subprocess.run(
            [*command, "--output", str(output)],
            cwd=HERE,
            env=os.environ | {"COLUMNS": "200"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    line = {"game": name, "seed": seed, "settings": settings, "status": ended.returncode}
    line["minutes"] = round((time.monotonic() - begun) / 60, 2)
    if (output / "summary.json").is_file():
        line |= figures(name, json.loads((output / "summary.json").read_text()))
    return line


def figures(name: str, summary: dict[str, Any]) -> dict[str, Any]:
    """What a finished run reached."""
    env = made(name)
    low, high = constant(env)[0], best(env)
    rewards = {key: (summary[key] or {}).get("reward") for key in ("before", "after")}
    ways = {
        key: r if r is None else round((r - low) / (high - low), 3) for key, r in rewards.items()
    }
    return {
        "way": ways["after"],
        "started": ways["before"],
        "reward": rewards["after"],
        "constant": round(low, 4),
        "best": round(high, 4),
        "steps": summary["steps"],
        "stop_reason": summary["stop_reason"],
        "phases": summary["phases"],
        "players": summary["model_figures"].get("players"),
    }


def table(lines: list[dict[str, Any]]) -> str:
    """A row for each game, with the ways of its seeds; which games learned in time."""
    rows, learned = ["| game | way, seed by seed | minutes | learned |", "|---|---|---|---|"], 0
    for name in GAMES:
        runs = [line for line in lines if line["game"] == name]
        if not runs:
            continue
        ways = [run.get("way") for run in runs]
        minutes = max(run["minutes"] for run in runs)
        is_learned = all(w is not None and w >= LEARNED for w in ways) and minutes <= MINUTES
        learned += is_learned
        shown = ", ".join("failed" if w is None else f"{w:.2f}" for w in ways)
        game = name if name in TUNED else f"{name} (unseen)"
        rows.append(f"| {game} | {shown} | {minutes:.1f} | {'yes' if is_learned else 'no'} |")
    return "\n".join([*rows, "", f"{learned} of {len(rows) - 2} games learned."])


def main() -> None:
    """Run what is not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arguments", nargs="*", metavar="NAME|KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("runs/strangers"))
    parser.add_argument("--table", action="store_true", help="run nothing")
    given = parser.parse_args()
    folder = given.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.jsonl"
    lines = [json.loads(line) for line in results.open()] if results.is_file() else []
    names = [one for one in given.arguments if "=" not in one] or list(GAMES)
    settings = [one for one in given.arguments if "=" in one]
    done = {(line["game"], line["seed"]) for line in lines}
    for seed in [] if given.table else given.seeds:
        for name in [name for name in names if (name, seed) not in done]:
            lines.append(train(name, seed, folder, settings))
            with results.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
            print(json.dumps(lines[-1]), flush=True)
    print(table(lines))


if __name__ == "__main__":
    main()
