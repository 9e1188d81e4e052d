"""The results of runs of the preset `smollm2-explore`: tables and a picture.

    agentsgym eval RUN --suite experiments/smollm2_explore.yaml --max-action-tokens 8 --json \
        > RUN/variations.json
    python experiments/smollm2_explore.py RUN_DIRECTORY ...

Writes docs/results/smollm2-explore.json (each run's evaluations, its rewards in training, its
seconds, its scores in variations of the game), smollm2-explore.png, and the tables of
smollm2-explore.md, which it prints. `--report` draws and prints again from the JSON file.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from explore import mean_of
from smollm2 import EVALUATIONS, RESULTS, Run, draw, figures_of

from agentsgym import make

VARIATIONS = Path(__file__).with_suffix(".yaml")
STORED = RESULTS / "smollm2-explore.json"
MEASURES = {
    "reward": "score",
    "informing/free_shots": "looks in free shots",
    "informing/scored": "in scored episodes",
    "malformed": "malformed",
}


def with_variations(folder: Path) -> Run:
    """The figures of a run and of its evaluation in the variations, if there is one."""
    run = dict(figures_of(folder))
    del run["warm_start"]
    played = folder / "variations.json"
    games = json.loads(played.read_text())["games"] if played.is_file() else {}
    run["variations"] = {name: game["evaluation"] for name, game in games.items()}
    return run


def measure(evaluation: Mapping[str, Any], name: str) -> float:
    """A figure of an evaluation: its mean reward, or one of its metrics."""
    return float(evaluation[name] if name in evaluation else evaluation["metrics"][name])


def training_table(runs: Sequence[Run]) -> str:
    """Each evaluation: the mean over seeds with Student's interval, then each seed's score."""
    head = ["", *MEASURES.values(), "score of each seed, with its interval over tasks"]
    rows = []
    for key, when in EVALUATIONS.items():
        evaluations = [run["evaluations"][key] for run in runs]
        means = [mean_of([measure(e, name) for e in evaluations]) for name in MEASURES]
        rows.append([when, *means, ", ".join(map(_score, evaluations))])
    return _markdown(head, rows)


def variations_table(runs: Sequence[Run]) -> str:
    """Each variation: the exact references, then the mean over seeds."""
    head = ["game", "best without exploring", "best", *MEASURES.values(), "score of each seed"]
    rows = []
    for game in yaml.safe_load(VARIATIONS.read_text())["games"]:
        evaluations = [run["variations"][game["name"]] for run in runs if run["variations"]]
        if not evaluations:
            continue
        env = make("Explore", None, game["env_config"])
        values = [env.player(informs=False).value(), env.player().value()]
        means = [mean_of([measure(e, name) for e in evaluations]) for name in MEASURES]
        scores = ", ".join(f"{e['reward']:.3f}" for e in evaluations)
        rows.append([f"`{game['name']}`", *(f"{v:.3f}" for v in values), *means, scores])
    return _markdown(head, rows)


def _score(evaluation: Mapping[str, Any]) -> str:
    low, high = evaluation["reward_ci95"]
    return f"{evaluation['reward']:.3f} [{low:.3f}, {high:.3f}]"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Read the runs, or what was read before."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if not given.report:
        figures = [with_variations(folder) for folder in given.runs]
        STORED.write_text(json.dumps(figures, indent=1) + "\n")
    runs = json.loads(STORED.read_text())
    draw(runs, STORED.with_suffix(".png"))
    print(f"{training_table(runs)}\n\n{variations_table(runs)}")


if __name__ == "__main__":
    main()
