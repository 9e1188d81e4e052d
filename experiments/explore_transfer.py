"""Whether a model that learned to explore in one game explores in another.

    python experiments/explore_transfer.py [--seeds N] [--cache FOLDER] [--report]

One start imitates the careless teachers of all games, of both sizes, batch by batch in turn, so it
knows all words but not when looking pays. Each run trains it on one game and evaluates it on all,
on the games with more choices, and with noise. Results are kept in
docs/results/explore-transfer.json, where a run that is there is not run again; their
tables are printed at the end (`--report` does only that).
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from explore import mean_of
from explore_runs import RESULTS, Store, bests, loaded, made_start, measure, train

UPDATES, EVALUATED = 120, 256
GAMES: Mapping[str, Mapping[str, Any]] = {
    "place": {"game": "place"},
    "switches": {"game": "switches", "choices": 4},
    "rule": {"game": "rule", "choices": 4},
}
"""What is trained on."""
LARGER: Mapping[str, Mapping[str, Any]] = {
    "place, 16 choices": {"game": "place", "choices": 16},
    "switches, 8 choices": {"game": "switches", "choices": 8},
    "rule, 8 choices": {"game": "rule", "choices": 8},
}
NOISY: Mapping[str, Mapping[str, Any]] = {
    f"{name}, noise 0.2": {**game, "noise": 0.2} for name, game in GAMES.items()
}
TESTS = {**GAMES, **LARGER, **NOISY}
START = "start"
SIZES = [*GAMES.values(), *LARGER.values()]
WORDS = [
    {"game": "place"},
    {"game": "switches"},
    {"game": "rule", "choices": 4},
    {"game": "place", "choices": 16},
    {"game": "switches", "choices": 16},
    {"game": "rule", "choices": 8},
]
"""What the start imitates first: the games, switches in larger sizes."""
WARM_START = ((1200, 0.15, WORDS), (800, 0.5, SIZES), (200, 0.15, SIZES))
"""Updates, the share of looks of the imitated teachers, and the games. The second teachers, which
look more often, teach to use what was seen; after the third ones the model looks seldom."""


def start_of(folder: Path) -> Path:
    """The start: it knows the words of all games, and uses most of what it sees."""
    begun = None
    for number, (updates, looks, games) in enumerate(WARM_START):
        begun = made_start(
            [{**game, "teacher_looks": looks} for game in games],
            folder / f"transfer-{number}",
            begun=begun,
            steps=updates,
            batch_size=32,
            games_per_round=640,
        )
    assert begun is not None
    return begun


def run(trained: str, seed: int, folder: Path, updates: int = UPDATES) -> dict[str, Any]:
    """The figures of the model trained on one game (START: not trained), for all tests."""
    model, tokenizer = loaded(folder)
    began, rewards = time.process_time(), []
    if trained != START:
        rewards = train(model, tokenizer, GAMES[trained], updates, seed)
    return {
        "trained": trained,
        "seed": seed,
        "tests": {name: measure(model, tokenizer, game, EVALUATED) for name, game in TESTS.items()},
        "cpu_seconds": round(time.process_time() - began, 1),
        "training": [round(reward, 3) for reward in rewards],
    }


def table(results: Sequence[Mapping[str, Any]], figure: str) -> str:
    """A figure of all tests (rows) after training on each game (columns)."""
    columns = [name for name in (START, *GAMES) if any(r["trained"] == name for r in results)]
    head = ["played", "without exploring", "best", *columns]
    lines = [head, ["---"] * len(head)]
    for name, game in TESTS.items():
        cells = [
            mean_of([r["tests"][name][figure] for r in results if r["trained"] == column])
            for column in columns
        ]
        lines.append([name, *(f"{value:.3f}" for value in bests(game)), *cells])
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def report(store: Store) -> None:
    """Print the tables of the stored results."""
    results = store.read()
    print(table(results, "score"), table(results, "looks"), sep="\n")


def main() -> None:
    """Run what has no result, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cache", type=Path, help="a folder that keeps the start")
    parser.add_argument("--report", action="store_true", help="only print the tables")
    args = parser.parse_args()
    store = Store(RESULTS / "explore-transfer.json")
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(0 if args.report else args.seeds):
            for trained in (START, *GAMES) if seed == 0 else GAMES:
                if (trained, seed) not in {(r["trained"], r["seed"]) for r in store.read()}:
                    store.add(run(trained, seed, start_of(args.cache or Path(scratch))))
    report(store)


if __name__ == "__main__":
    main()
