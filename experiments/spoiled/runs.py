"""Whether `agentsgym doctor` names what is wrong: forty runs spoiled on purpose and twenty that
learn, of tiny models on five small games.

    python experiments/spoiled/runs.py [--out runs/spoiled] [--only TEXT ...] [--half choose|count]
    python experiments/spoiled/runs.py --table

A run takes 10 to 30 seconds of CPU on one thread. One that has finished is not trained again, so
the command can be stopped at any time; each finished run is a line of `runs.jsonl`: what is wrong
with it, and what the doctor names. `--table` diagnoses all finished runs again and prints a table.

A good run counts if it makes half of the way from its start to the best play. Thresholds of the
doctor may be chosen on the runs of the half "choose"; those of the half "count" are for counting.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import games  # noqa: F401  # registers them
import numpy as np
import torch

from agentsgym import make
from agentsgym.agents.scripted import scripted_agent
from agentsgym.credit.table import StepTable
from agentsgym.report.doctor import diagnose, examine, read_evidence
from agentsgym.report.stored import Source
from agentsgym.runs import parse_config, train_run
from agentsgym.runs.files import RunDirectory, Summary, read_summary
from agentsgym.warm_start.new_model import warm_start
from agentsgym.warm_start.settings import WarmStartSettings

Json = dict[str, Any]
STEPS = {"lamp": 1, "card": 3, "walk": 7, "number": 3, "trial": 1}
GOOD = "nothing"
SPOILT, LEARNED = 60, 160
"""Updates of a run: what is spoiled shows early, and what learns needs its time."""
WARM_START = {
    "steps": 300,
    "batch_size": 48,
    "games_per_round": 480,
    "tokenizer_games": 200,
    "tokenizer": "words",
    "model": {"hidden_size": 64, "intermediate_size": 128},
}


def no_credit(table: StepTable) -> np.ndarray:
    """The bug of an estimator of one's own: each rollout is compared with itself."""
    return table.reward - table.reward


@dataclass(frozen=True)
class Case:
    """A run: its game, what is changed in it, and the faults of which the doctor should name one,
    none if the run is good."""

    kind: str
    game: str
    expected: tuple[str, ...] = ()
    changes: Mapping[str, Any] | None = None
    seed: int = 0
    half: str = "choose"

    @property
    def name(self) -> str:
        """The name of its directory."""
        return f"{self.kind}-{self.game}-{self.seed}"

    def config(self, out: Path) -> Any:
        """The run."""
        settings = merged(basis(self.game), self.changes or {})
        settings["train"]["max_steps"] = SPOILT if self.expected else LEARNED
        model = {"path": str(start(self.game, settings["env_config"], out)), "dtype": "float32"}
        own = {"name": self.name, "seed": self.seed, "output_dir": str(out / self.name)}
        return parse_config({**settings, **own, "model": model})


def start(game: str, env_config: Json, out: Path) -> Path:
    """A tiny model that imitated the player of a game with these settings; made once, because most
    of the runs share it."""
    own = {key: env_config[key] for key in ("looks", "uses") if key in env_config}
    if env_config.get("spoil") in ("blind", "few"):
        own["spoil"] = env_config["spoil"]
    own["max_steps_per_episode"] = STEPS[game]
    folder = out / "starts" / "-".join([game, *map(str, own.values())])
    if not (folder / "model.safetensors").is_file():
        torch.set_num_threads(1)
        env = make(f"Spoiled-{game}", None, own)
        player = scripted_agent(env, "teacher", seed=0)
        begun = warm_start(env, player, WarmStartSettings.model_validate(WARM_START), 0)
        part = folder.with_name(f"{folder.name}.{os.getpid()}")
        begun.model.save_pretrained(part)
        begun.tokenizer.save_pretrained(part)
        if not folder.exists():  # another process may have made it
            part.rename(folder)
    return folder


def basis(game: str) -> Json:
    """What all runs of a game share."""
    env: Json = {"max_steps_per_episode": STEPS[game]}
    train: Json = {"advantage_estimator": "trial" if game == "trial" else "rloo"}
    if game == "trial":
        env |= {"looks": 0.2, "uses": 0.7}
    return {
        "env": f"Spoiled-{game}",
        "env_config": env,
        "signal_check": False,
        "train": {
            **train,
            "max_steps": LEARNED,
            "per_device_train_batch_size": 64,
            "num_generations": 8,
            "max_action_tokens": 6,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_steps": 3,
            "weight_decay": 0.0,
            "adam_beta2": 0.98,
            "loss_type": "dapo",
            "gradient_checkpointing": False,
            "max_tokens_per_forward": 4096,
            "save_strategy": "no",
        },
        "eval": {"rollouts": 128},
        "keep_rollouts": {},
        "threads": 1,
    }


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Json:
    """The settings with changes, section by section."""
    result = dict(base)
    for key, value in changes.items():
        known = result.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        result[key] = merged(known, value) if both else value
    return result


def env(**values: Any) -> Json:
    """Changes of the environment."""
    return {"env_config": values}


def train(**values: Any) -> Json:
    """Changes of the training."""
    return {"train": values}


SPOILED: tuple[tuple[str, tuple[str, ...], Json, tuple[str, ...]], ...] = (
    ("constant", ("reward_constant",), env(spoil="constant"), ("lamp", "card", "walk", "number")),
    ("uncredited", ("reward_unreached",), train(advantage_estimator="runs.no_credit"),
     ("lamp", "walk")),
    ("freeshot", ("reward_unreached",), train(advantage_estimator="step_return"),
     ("trial", "trial")),
    ("blind", ("observation_missing",), env(spoil="blind"),
     ("lamp", "card", "walk", "number", "trial")),
    ("mask", ("actions_missing",), env(spoil="few"), ("lamp", "card", "number")),
    ("slow", ("rate_too_small",), train(learning_rate=1e-5), ("lamp", "card", "walk", "number")),
    ("fast", ("rate_too_large",), train(learning_rate=0.1), ("lamp", "card", "walk", "number")),
    ("entropy", ("entropy_gone", "one_action"), train(entropy_coef=-1.0),
     ("lamp", "card", "number")),
    ("careless", ("observation_unused", "informing_vanishes"), env(uses=0.0), ("trial", "trial")),
    ("unlooking", ("informing_vanishes",), env(looks=0.03, uses=0.3), ("trial",)),
    ("groups", ("groups_too_small",), train(num_generations=2, per_device_train_batch_size=4),
     ("lamp", "number")),
    ("short", ("episodes_too_short",), env(max_steps_per_episode=1), ("number", "walk")),
    ("short2", ("episodes_too_short",), env(max_steps_per_episode=2), ("walk",)),
    ("cut", ("truncated_actions",), train(max_action_tokens=1), ("lamp", "card", "number")),
    ("onesign", ("one_sign",), merged(env(bonus=1.0), train(advantage_estimator="reward")),
     ("lamp", "walk")),
)  # fmt: skip
"""Kind, the faults of which one should be named, the change, and the games."""

GOODS: tuple[tuple[str, Json, Mapping[str, int]], ...] = (
    ("", {}, {"lamp": 4, "trial": 4}),
    ("-taught", env(looks=0.4, uses=0.6), {"card": 4}),
    ("-grpo", train(advantage_estimator="grpo"), {"lamp": 2, "trial": 2}),
    ("-large", train(num_generations=16, per_device_train_batch_size=128), {"lamp": 2}),
    ("-gentle", merged(env(looks=0.4, uses=0.6), train(learning_rate=5e-4)), {"card": 2}),
)  # fmt: skip
"""Runs that learn: their kind, what is changed, and the number of seeds of each game. `walk` and
`number` are not among them, because they do not surely make half of the way in 160 updates."""


def cases() -> Iterator[Case]:
    """All runs, first those of the half "choose"."""
    made = []
    for number, (kind, expected, changes, names) in enumerate(SPOILED):
        for place, game in enumerate(names):
            half = ("choose", "count")[(number + place) % 2]
            seed = place if len(set(names)) == 1 else 0
            made.append(Case(kind, game, expected, changes, seed, half))
    for kind, changes, counts in GOODS:
        seeds = [(game, seed) for game, number in counts.items() for seed in range(number)]
        made += [
            Case(f"{GOOD}{kind}", game, (), changes, seed, ("choose", "count")[seed % 2])
            for game, seed in seeds
        ]
    return iter(sorted(made, key=lambda case: case.half))


def finished(case: Case, out: Path) -> Summary | None:
    """The summary of a run that has finished."""
    path = RunDirectory(out / case.name).summary
    known = read_summary(path) if path.is_file() else None
    return known if known is not None and known.status == "finished" else None


def trained(case: Case, out: Path) -> Summary:
    """The run's summary; it is trained unless it has finished."""
    return finished(case, out) or train_run(case.config(out), set_aside=True, examine=examine)


def line_of(case: Case, summary: Summary, out: Path) -> Json:
    """What is wrong with a run, and what the doctor names."""
    found = diagnose(read_evidence(Source(out / case.name)))
    names = [fault.fault for fault in found]
    before, after = summary.before, summary.after
    return {
        "run": case.name,
        "half": case.half,
        "expected": list(case.expected),
        "named": names,
        "right": bool(set(names) & set(case.expected)) if case.expected else not names,
        "first": bool(names[:1]) and names[0] in case.expected,
        "before": before and before.reward,
        "after": after and after.reward,
        "reference": after and after.reference,
        "players": summary.players,
        "at_its_end": [one["fault"] for one in summary.findings],
        "seconds": summary.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/spoiled"))
    parser.add_argument("--only", nargs="*", default=[""], help="names that contain one of these")
    parser.add_argument("--half", choices=("choose", "count"))
    parser.add_argument("--table", action="store_true", help="train nothing")
    args = parser.parse_args()
    chosen = [
        case
        for case in cases()
        if any(text in case.name for text in args.only) and args.half in (None, case.half)
    ]
    lines = [] if args.table else [made for case in chosen if (made := run(case, args.out))]
    if args.table:
        known = [(case, finished(case, args.out)) for case in chosen]
        lines = [line_of(case, summary, args.out) for case, summary in known if summary]
        (args.out / "table.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    print(table(lines))


def run(case: Case, out: Path) -> Json:
    """Train a run, and write its line."""
    began = time.monotonic()
    line = line_of(case, trained(case, out), out)
    print(f"{time.monotonic() - began:5.1f} s", json.dumps(line), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    with (out / "runs.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    return line


def shown(value: float | None) -> str:
    """A reward."""
    return "–" if value is None else f"{value:.2f}"


def learned(one: Json) -> bool:
    """Whether a run makes half of the way to the best; one that does not is no good one."""
    before, after, best = one["before"], one["after"], one["reference"]
    return None not in (before, after, best) and after - before >= (best - before) / 2


def table(lines: list[Json]) -> str:
    """The lines as a table, and the counts of both halves."""
    rows = [
        "| run | half | should be named | named | reward before and after | best |",
        "|" + "---|" * 6,
    ]
    for one in lines:
        rows.append(
            f"| {one['run']} | {one['half']} | {' or '.join(one['expected']) or '–'} | "
            f"{', '.join(one['named']) or '–'} | {shown(one['before'])} → {shown(one['after'])} | "
            f"{shown(one['reference'])} |"
        )
    for half in ("choose", "count"):
        part = [one for one in lines if one["half"] == half]
        spoiled = [one["right"] for one in part if one["expected"]]
        good = [one["right"] for one in part if not one["expected"] and learned(one)]
        rows.append(
            f"\n{half}: the cause is named in {sum(spoiled)} of {len(spoiled)} spoiled runs, no "
            f"fault in {sum(good)} of {len(good)} good ones that make half of the way"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
