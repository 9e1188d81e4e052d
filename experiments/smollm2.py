"""The results of runs of the preset `smollm2`: figures, a table and a picture.

    python experiments/smollm2.py RUN_DIRECTORY ...

Writes docs/results/smollm2.json (each run's evaluations, its rewards in training, its seconds) and
docs/results/smollm2.png, and prints the tables of docs/results/smollm2.md and games on one
held-out task. `--report` draws and prints again from smollm2.json, without the games.
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentsgym import make
from agentsgym.evaluation import cluster_bootstrap
from agentsgym.runs.files import RunDirectory, read_metrics, read_rollouts, read_summary
from agentsgym.types import Rollout

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
EVALUATIONS = {
    "before": "before",
    "warm_started": "after the warm start",
    "after": "after GRPO",
}
PHASES = {"before": "before", "warm_started": "warmstarted", "after": "after"}
COLORS = ("#1f5fa8", "#d1660a", "#2b8a3e")
Run = Mapping[str, Any]


def figures_of(folder: Path) -> Run:
    """What a finished run says about itself, as plain data."""
    directory = RunDirectory(folder)
    summary = read_summary(directory.summary).model_dump(mode="json")
    lines = [line for line in read_metrics(directory.metrics) if line["phase"] == "train"]
    kept = ("name", "seed", "env", "steps", "agent_tokens", "seconds", "phases", "threads")
    return {key: summary[key] for key in kept} | {
        "evaluations": {key: summary[key] for key in EVALUATIONS},
        "warm_start": summary["model_figures"],
        "gain": gain(directory.root),
        "training": {
            name: [line.get(name) for line in lines]
            for name in ("step", "reward", "win_rate", "malformed", "entropy", "time/rollouts")
        },
    }


def gain(root: Path) -> Mapping[str, Any]:
    """What GRPO added to the warm-started model on the same held-out tasks: the mean difference of
    reward, with its interval over tasks, and for GuessTheNumber over the numbers to be guessed."""
    warm, after = (list(read_rollouts(root, PHASES[key])) for key in ("warm_started", "after"))
    before = {(rollout.group, rollout.index): rollout.final_reward for rollout in warm}
    gains = [rollout.final_reward - before[rollout.group, rollout.index] for rollout in after]
    seeds = [rollout.task_data["seed"] for rollout in after]
    result = {"reward": float(np.mean(gains)), "ci95": cluster_bootstrap(gains, seeds)}
    if after[0].env_class_path.endswith("GuessTheNumber"):
        env = make(after[0].env_class_path, env_config=dict(after[0].env_config))
        plays = {seed: env._initialize_episode("", {"seed": seed}) for seed in set(seeds)}
        numbers = [plays[seed].raw.game_number for seed in seeds]
        result["numbers"] = len(set(numbers))
        result["ci95_over_numbers"] = cluster_bootstrap(gains, numbers)
        result["follows_hints"] = [follows_hints(warm), follows_hints(after)]
    return result


def follows_hints(rollouts: Sequence[Rollout]) -> float:
    """The share of guesses after a game's first one that agree with all hints before them."""
    agree = [followed for rollout in rollouts for followed in _follows(rollout)]
    return sum(agree) / len(agree)


def _follows(rollout: Rollout) -> Iterator[bool]:
    low, high, guess = 1, 20, None
    for number, step in enumerate(rollout.episodes[0].steps):
        hint = re.search(r"The target number is (higher|lower)", step.observation)
        if hint and guess is not None:
            if hint[1] == "higher":
                low = max(low, guess + 1)
            else:
                high = min(high, guess - 1)
        move = re.search(r"\[(\d+)\]", step.action)
        guess = int(move[1]) if move else None
        if number > 0:
            yield guess is not None and low <= guess <= high


def table(runs: Sequence[Run]) -> str:
    """One line per run: its reward and its win rate in each evaluation, with their intervals."""
    head = ["environment", "seed"] + [
        f"{measure} {when}" for measure in ("reward", "win rate") for when in EVALUATIONS.values()
    ]
    head.append("gain of GRPO in reward")
    lines = [head, ["---"] * len(head)]
    for run in runs:
        evaluations = [run["evaluations"][key] for key in EVALUATIONS]
        rewards = [_with_interval(f["reward"], f["reward_ci95"]) for f in evaluations]
        wins = [_with_interval(f["win_rate"], f["ci95"]) for f in evaluations]
        gained = _with_interval(run["gain"]["reward"], run["gain"]["ci95"])
        lines.append([run["env"], str(run["seed"]), *rewards, *wins, gained])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None or interval is None:
        return "–"
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def draw(runs: Sequence[Run], picture: Path) -> None:
    """Reward in training and in the evaluations, one color per run."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = sorted({run["env"] for run in runs}, key=[run["env"] for run in runs].index)
    figure = Figure(figsize=(4.6 * len(names), 3.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        shown = [run for run in runs if run["env"] == name]
        for run, color in zip(shown, COLORS, strict=False):
            _draw_run(axes, run, color)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("optimizer step of GRPO (0: after the warm start)")
        axes.set_ylabel("reward")
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7, loc="lower right")
    figure.savefig(picture)


def _draw_run(axes: Any, run: Run, color: str) -> None:
    training = run["training"]
    axes.plot(training["step"], training["reward"], color=color, alpha=0.35, linewidth=1)
    ends = [(0, "warm_started"), (run["steps"], "after")]
    rewards = [run["evaluations"][key]["reward"] for _, key in ends]
    intervals = [run["evaluations"][key]["reward_ci95"] for _, key in ends]
    below = [reward - low for reward, (low, _) in zip(rewards, intervals, strict=True)]
    above = [high - reward for reward, (_, high) in zip(rewards, intervals, strict=True)]
    axes.errorbar(
        [step + 0.15 * run["seed"] for step, _ in ends],
        rewards,
        yerr=[below, above],
        fmt="o",
        color=color,
        capsize=3,
        markersize=4,
        label=f"seed {run['seed']}: held-out tasks (training: thin)",
    )


def games(folder: Path, count: int) -> str:
    """The first games that every evaluation played, on the same held-out tasks."""
    root = RunDirectory(folder).root
    parts = []
    for key, phase in PHASES.items():
        played = list(read_rollouts(root, phase))[:count]
        parts += [f"-- {EVALUATIONS[key]}", *map(_spoken, played)]
    return "\n".join(parts)


def _spoken(rollout: Rollout) -> str:
    turns = [step for episode in rollout.episodes for step in episode.steps]
    texts = [f"{step.observation.strip()}\n>>> {step.action}" for step in turns]
    return "\n".join([f"task {rollout.task_data}, reward {rollout.final_reward:.3f}", *texts])


def main() -> None:
    """Read the runs, or what was read before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--games", type=int, default=2)
    given = parser.parse_args()
    stored = RESULTS / "smollm2.json"
    if not given.report:
        figures = [figures_of(folder) for folder in given.runs]
        stored.write_text(json.dumps(figures, indent=1) + "\n")
        print("\n\n".join(games(folder, given.games) for folder in given.runs[:1]))
    runs = json.loads(stored.read_text())
    draw(runs, RESULTS / "smollm2.png")
    print(table(runs))


if __name__ == "__main__":
    main()
