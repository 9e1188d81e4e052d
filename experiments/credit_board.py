"""The board of credit estimators: the figures of docs/results/credit-board.md.

    python experiments/credit_board.py [--curves] [--env NAME] [--report] [--quick]
    python experiments/credit_board.py my_module.my_function ...

Its first part is exact: bias, noise and time of every estimator in every variant on the processes
of experiments/estimators/board.py, in a few minutes; with estimators of your own it prints just
their figures, as JSON lines. Its
second is learning: every estimator in four environments whose best play is known, seeds 0 to 2.
Each run begins with the weights of its environment's start, plays `env_steps` steps of training
tasks, and is then evaluated on held-out tasks; in Explore it is a run of the preset, as in
experiments/explore.py. docs/results/credit-board.json and explore.json hold the trainings,
credit-board-exact.json the exact figures; tables of both are printed and the curves drawn.
`--curves` runs trainings that are missing, `--report` leaves the exact part out, and `--quick` is a
smoke test in a temporary folder.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import common
import explore
import numpy as np
import torch
import transformers
from experiments.estimators import neighbours
from experiments.estimators.board import (
    CHALLENGES,
    Measured,
    board,
    branched,
    update_time,
    variants_of,
)
from experiments.estimators.by_state import PUBLISHED
from explore_runs import Store
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback

from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, make
from agentsgym.agents import DirectOutputAgent
from agentsgym.credit import ESTIMATORS, find_estimator
from agentsgym.envs import EnvPool
from agentsgym.evaluation import rollout_requests
from agentsgym.evaluation.intervals import t_quantile
from agentsgym.evaluation.metrics import record, summarize
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import play
from agentsgym.types import Rollout, SamplingParams
from agentsgym.types.names import import_from_here
from agentsgym.warm_start.new_model import warm_start
from agentsgym.warm_start.settings import TinySettings, WarmStartSettings

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
SEEDS = 3
REFERENCE = "rloo"
QUICKSTART = ROOT / "src" / "agentsgym" / "presets" / "quickstart"
# The package's, the published ones and neighbours, as results name them, with what an estimator is
# found by.
TRAINED = (*ESTIMATORS, *PUBLISHED, neighbours.max_rl.name, neighbours.batch_mean.name)
NAMES = {name.rpartition(".")[2]: name for name in TRAINED}
FREE_SHOT = {"episodes_per_trial": 2, "free_shots": 1, "carry": "full"}


# -- what is compared -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """An environment and how it is trained. Its start is a tiny model that read games of `player`,
    or without one the package's trained model."""

    env_config: Mapping[str, Any]
    env_steps: int
    rollouts: int
    group: int
    learning_rate: float
    action_tokens: int
    eval_episodes: int
    player: Any = None
    start_updates: int = 0


class _Player:
    """Says legal things that are drawn from a generator of its own."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.rng = np.random.default_rng(0)


class FickleOfTwo(_Player):
    """Any of two arms first; then the same again, three times in four after a win, two in five
    after a loss."""

    def get_action(self, messages: Sequence[Any], last: Any) -> tuple[str, Any]:
        prompt = messages[-1]["content"]
        stay = 0.5 if last is None else 0.75 if f"{last} won." in prompt else 0.4
        one, other = self.env.arm_names
        same = self.rng.random() < stay
        arm = one if (last == one) == same else other
        return arm, arm


RECIPES: Mapping[str, Recipe] = {
    "Bandit": Recipe(
        {
            "arms": 2,
            "max_steps_per_episode": 3,
            "prior_alpha": 0.1,
            "prior_beta": 0.1,
            "explain_actions": False,
            "eval_tasks": 1024,
            **FREE_SHOT,
        },
        env_steps=12_000,
        rollouts=128,
        group=8,
        learning_rate=1e-3,
        action_tokens=3,
        eval_episodes=1024,
        player=FickleOfTwo,
        start_updates=150,
    ),
    "Mastermind": Recipe(
        {
            "colors": 4,
            "hints": 2,
            "max_steps_per_episode": 2,
            "explain_actions": False,
            "train_tasks_per_code": 84,
            "eval_tasks_per_code": 21,
        },
        env_steps=8_000,
        rollouts=128,
        group=8,
        learning_rate=1e-3,
        action_tokens=4,
        eval_episodes=336,
        player=lambda env: env.teacher_agent(),
        start_updates=300,
    ),
    "TwentyQuestions": Recipe(
        {
            "table": "quickstart",
            "split": "hints",
            "hints": 2,
            "max_steps_per_episode": 8,
            "answer_style": "echo",
            "explain_actions": False,
            "train_tasks_per_secret": 64,
            "eval_tasks_per_secret": 8,
        },
        env_steps=8_000,
        rollouts=64,
        group=16,
        learning_rate=6e-4,
        action_tokens=12,
        eval_episodes=512,
    ),
}


ENVS = ("Explore", *RECIPES)


@dataclass(frozen=True)
class Cell:
    """One run: where, credited how, from which seed."""

    env: str
    estimator: str
    seed: int = 0


def grid(args: argparse.Namespace) -> Iterator[Cell]:
    """Every cell, seed by seed, after the starts."""
    envs = args.env or ENVS
    yield from (Cell(env, "start") for env in envs if env in RECIPES)
    for seed in range(1 if args.quick else SEEDS):
        for name in NAMES:
            yield from (Cell(env, name, seed) for env in envs)


def settings_of(estimator: str) -> dict[str, Any]:
    """The settings of training that select an estimator."""
    name = NAMES[estimator]
    branches = {"branches": 1} if find_estimator(name).reads_branches else {}
    return {"advantage_estimator": name} | branches


# -- starts ---------------------------------------------------------------------------------------


def start_of(env: str, cache: Path, seed: int = 0) -> Path:
    """The folder of the weights that every run in the environment begins with; made where it is not
    there yet, from this seed."""
    recipe, folder = RECIPES[env], cache / env
    if recipe.player is None:
        return QUICKSTART
    if not (folder / "model.safetensors").exists():
        environment = make(env, None, recipe.env_config)
        shape = TinySettings(hidden_size=96, layers=2, intermediate_size=192, max_positions=256)
        config = WarmStartSettings(
            steps=recipe.start_updates,
            batch_size=32,
            games_per_round=960,
            tokenizer_games=480,
            vocab_size=500,
            max_token_length=64,
            warmup_steps=20,
            model=shape,
        )
        made = warm_start(environment, recipe.player(environment), config, seed)
        folder.mkdir(parents=True, exist_ok=True)
        made.tokenizer.save_pretrained(folder)
        made.model.save_pretrained(folder)
    return folder


def load(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a start."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)


# -- one run --------------------------------------------------------------------------------------


class Budget(TrainerCallback):  # type: ignore[misc]
    """Counts environment steps, keeps the curve, and ends training when the budget is spent."""

    def __init__(self, env_steps: int) -> None:
        self.env_steps = env_steps
        self.played: list[tuple[int, float]] = []

    def __call__(self, rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> None:
        steps = sum(len(e.steps) for r in rollouts for e in r.episodes)
        self.played.append((steps, summarize([record(r) for r in rollouts])["reward"]))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = self.used >= self.env_steps

    @property
    def used(self) -> int:
        return sum(steps for steps, _ in self.played)

    @property
    def auc(self) -> float:
        """Mean score over the environment steps."""
        return sum(steps * reward for steps, reward in self.played) / self.used


def train(
    cell: Cell,
    model: Any,
    tokenizer: Any,
    quick: bool,
    change: Callable[[GRPOEnvTrainer], Any] = lambda trainer: None,
    budget: Budget | None = None,
) -> Budget:
    """Train the model in place on the budget (None: the recipe's), with a trainer that `change`
    changed."""
    recipe = RECIPES[cell.env]
    env = make(cell.env, tokenizer, recipe.env_config)
    budget = budget or Budget(200 if quick else recipe.env_steps)
    options = common.trainer_options() | {
        "output_dir": tempfile.mkdtemp(prefix="learning-"),
        "max_steps": 10_000,
        "per_device_train_batch_size": 32 if quick else recipe.rollouts,
        "num_generations": recipe.group,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": "constant",
        "max_action_tokens": recipe.action_tokens,
        "max_tokens_per_forward": 2048,
        "shuffle_dataset": True,
        "use_cpu": True,
        "seed": cell.seed,
        **settings_of(cell.estimator),
    }
    trainer = GRPOEnvTrainer(
        model=model,
        args=GRPOEnvConfig(**options),
        train_dataset=env.get_train_dataset(),
        processing_class=tokenizer,
        rollout_sink=budget,
        callbacks=[budget],
    )
    trainer.remove_callback(PrinterCallback)
    change(trainer)
    trainer.train()
    return budget


def measure(cell: Cell, model: Any, tokenizer: Any, quick: bool) -> float:
    """Mean score on held-out tasks."""
    recipe = RECIPES[cell.env]
    rows = list(make(cell.env, None, recipe.env_config).get_eval_dataset())
    requests = rollout_requests(rows, 32 if quick else recipe.eval_episodes, cluster=json.dumps)
    engine = EmbeddedEngine(model.eval(), tokenizer, capacity=256)
    agent = DirectOutputAgent(engine, SamplingParams(recipe.action_tokens, 1.0))
    rollouts = play(requests, agent, EnvPool(tokenizer))
    return round(summarize([record(rollout) for rollout in rollouts])["reward"], 4)


def result_of(cell: Cell, cache: Path, quick: bool) -> dict[str, Any]:
    """Carry out a cell (the estimator "start": only measure the start)."""
    torch.manual_seed(cell.seed)
    began = time.process_time()
    model, tokenizer = load(start_of(cell.env, cache))
    result: dict[str, Any] = dataclasses.asdict(cell) | {"auc": None, "env_steps": 0, "curve": []}
    if cell.estimator != "start":
        budget = train(cell, model, tokenizer, quick)
        curve = [(steps, round(reward, 4)) for steps, reward in budget.played]
        result |= {"auc": round(budget.auc, 4), "env_steps": budget.used, "curve": curve}
    result["score"] = measure(cell, model, tokenizer, quick)
    result["cpu_seconds"] = round(time.process_time() - began, 1)
    return result


def run_preset(cell: Cell, cache: Path) -> dict[str, Any]:
    """A run of the preset `explore` from its stored start, as experiments/explore.py has them."""
    cache.mkdir(parents=True, exist_ok=True)
    settings = {f"train.{key}": value for key, value in settings_of(cell.estimator).items()}
    row = explore.Cell(f"`{cell.estimator}`", settings)
    return explore.run(row, cell.seed, cache, cache)


def of_preset(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Such a run in the form of the others; an update of the preset plays 32 trials of 2 steps."""
    return {
        "env": "Explore",
        "estimator": stored["cell"].strip("`"),
        "seed": stored["seed"],
        "score": stored["score"],
        "auc": stored["auc"],
        "curve": [(64, reward) for reward in stored["training"]],
    }


# -- results on disk ------------------------------------------------------------------------------


class Stores:
    """The stored results: of the preset `explore`, and of all others."""

    def __init__(self, folder: Path) -> None:
        self.explore = Store(folder / "explore.json")
        self.others = Store(folder / "credit-board.json")

    def read(self) -> list[dict[str, Any]]:
        """All of them, in one form."""
        rows = [run for run in self.explore.read() if run["cell"].strip("`") in NAMES]
        start = [{"env": "Explore", "estimator": "start", "seed": 0, "score": rows[0]["start"]}]
        return [*start * bool(rows), *map(of_preset, rows), *self.others.read()]


def run(args: argparse.Namespace, stores: Stores, cache: Path) -> None:
    """All cells that are not there yet."""
    for cell in grid(args):
        done = {(r["env"], r["estimator"], r["seed"]) for r in stores.read()}
        if dataclasses.astuple(cell) in done:
            continue
        if cell.env == "Explore":
            stores.explore.add(run_preset(cell, cache / "explore"))
        else:
            stores.others.add(result_of(cell, cache, args.quick))


# -- bias, noise and time, exactly -----------------------------------------------------------------


def exact_part(file: Path) -> str:
    """Every exact figure into a file of JSON, and two tables of them."""
    names = [name for name in (*ESTIMATORS, *PUBLISHED) if not find_estimator(name).reads_branches]
    assigns = variants_of(names)
    lines = [*board(assigns), *neighbours.rows()]
    lines += [("branch", line) for trunks in (2, 4) for _, line, _ in branched(trunks, 1)]
    figures = ",\n".join(json.dumps({"estimator": name} | finite(m)) for name, m in lines)
    file.write_text(f"[\n{figures}\n]\n", encoding="utf-8")
    times = {name: {"ms": f"{update_time(assign):.1f}"} for name, assign in assigns.items()}
    turned = _summary(lines, {name: {} for name in assigns}, "turned")
    return "\n\n".join([TURNED, turned, NOISE, _summary(lines, times, "noise")])


def _summary(
    lines: Sequence[tuple[str, Measured]], more: Mapping[str, Mapping[str, str]], what: str
) -> str:
    """One figure in groups of 8, a column for each process."""
    at = {(name, m.process): m for name, m in lines if m.size == 8}
    rows = []
    for name, columns in more.items():
        own = [at[name, process] for process in CHALLENGES]
        base = [at[REFERENCE, process].noise if what == "noise" else 1.0 for process in CHALLENGES]
        figures = (_figure(getattr(m, what) / b) for m, b in zip(own, base, strict=True))
        rows.append((f"`{name}`", *figures, *columns.values()))
    extra = next(iter(more.values()))
    return table(("estimator", *CHALLENGES, *extra), rows)


def _figure(value: float) -> str:
    if value == np.inf:
        return "∞"
    return "0" if value < 1e-9 else f"{value:.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# -- the tables of learning ------------------------------------------------------------------------


def learning_part(results: Sequence[dict[str, Any]]) -> str:
    """How each environment is trained, and a table of each."""
    parts = [LEARNING]
    for env in ENVS:
        here = [result for result in results if result["env"] == env]
        if here:
            parts += [f"### {env}", _recipe_line(env), _learned(here)]
    return "\n\n".join(parts)


def _learned(results: Sequence[dict[str, Any]]) -> str:
    """Held-out score and mean score in training, each with its difference from the reference."""
    groups = by_label(results)
    rows = [("start", "", f"{groups['start'][0]['score']:.3f}", "", "", "", "")]
    for name in list(groups)[1:]:
        scores = [run["score"] for run in groups[name]]
        rows.append(
            (
                f"`{name}`",
                str(len(scores)),
                student(scores),
                ", ".join(f"{score:.3f}" for score in scores),
                verdict(groups, name, "score"),
                student([run["auc"] for run in groups[name]]),
                verdict(groups, name, "auc"),
            )
        )
    over = f"over `{REFERENCE}`"
    learned = table(("estimator", "n", "score", "its seeds", over, "in training", over), rows)
    missing = [f"`{name}`" for name in NAMES if len(groups.get(name, ())) < SEEDS]
    return f"{learned}\n\nFewer than {SEEDS} runs: {', '.join(missing)}." if missing else learned


def by_label(results: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The results of each estimator, seed by seed."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in sorted(results, key=lambda r: r["seed"]):
        groups.setdefault(result["estimator"], []).append(result)
    order = ["start", *NAMES]
    return {name: groups[name] for name in order if name in groups}


def half_width(values: Sequence[float]) -> float:
    """Half of Student's 95 % interval of the mean."""
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return t_quantile(0.975, len(values) - 1) * error


def student(values: Sequence[float]) -> str:
    """The mean with its interval, if there are several values."""
    half = f" ± {half_width(values):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{half}"


def verdict(groups: Mapping[str, Sequence[Mapping[str, Any]]], name: str, key: str) -> str:
    """The mean difference from the reference, seed by seed, or that none is shown."""
    base = {run["seed"]: run[key] for run in groups[REFERENCE]}
    apart = [run[key] - base[run["seed"]] for run in groups[name]]
    if name == REFERENCE or not any(apart):
        return "" if name == REFERENCE else "the same runs"
    if len(apart) < 2 or abs(float(np.mean(apart))) <= half_width(apart):
        return "no difference shown"
    return f"**{np.mean(apart):+.3f}** ± {half_width(apart):.3f}"


def _recipe_line(env: str) -> str:
    if env not in RECIPES:
        return (
            "The preset `explore` (240 updates of 32 trials of two steps, in groups of 8; a run "
            "ends early if no group has signal any more): a free shot, then a scored episode of "
            "one step. [More about these runs](explore.md)."
        )
    recipe = RECIPES[env]
    config = ", ".join(f"{name}={value}" for name, value in recipe.env_config.items())
    start = "the package's trained model"
    if recipe.player:
        start = f"a tiny model that read {32 * recipe.start_updates:,} games of a careless player"
    return (
        f"`{config}`; {recipe.env_steps:,} environment steps in updates on {recipe.rollouts} "
        f"rollouts in groups of {recipe.group}, learning rate {recipe.learning_rate:g}; "
        f"{recipe.eval_episodes} held-out rollouts at temperature 1. Start: {start}."
    )


def draw(results: Sequence[dict[str, Any]], file: Path) -> None:
    """The curves of training, mean over seeds, an axis for each environment."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    lines = {}
    for axis, env in zip(axes.flat, ENVS, strict=True):
        groups = by_label([result for result in results if result["env"] == env])
        for number, name in enumerate(NAMES):
            curves = [np.array(run["curve"]) for run in groups.get(name, ())]
            if len(curves) == SEEDS:
                steps = np.linspace(0, min(curve[:, 0].sum() for curve in curves), 25)[1:]
                smooth = np.mean([_smoothed(curve, steps) for curve in curves], axis=0)
                style = {"color": f"C{number % 10}", "ls": "--" if number > 9 else "-"}
                (lines[name],) = axis.plot(steps, smooth, **style)
        axis.set(title=env, xlabel="environment steps", ylabel="score in training")
    figure.legend(lines.values(), lines, loc="outside right upper")
    figure.savefig(file, dpi=80)
    plt.close(figure)


def _smoothed(curve: Any, at: Any) -> Any:
    """Mean score since an eighth of the budget before, at each number of steps."""
    steps = np.cumsum(curve[:, 0])
    total = np.concatenate([[0.0], np.cumsum(curve[:, 0] * curve[:, 1])])
    sums = np.interp(at, np.concatenate([[0.0], steps]), total)
    before = np.maximum(at - at[-1] / 8, 0)
    earlier = np.interp(before, np.concatenate([[0.0], steps]), total)
    return (sums - earlier) / (at - before)


# -- what is printed -------------------------------------------------------------------------------


TURNED = "What remains of the bias after the best rescaling, groups of 8:"
NOISE = f"""Noise, groups of 8, over that of `{REFERENCE}`; `ms` is the CPU time for the credit of
an update on 256 rollouts of 20 steps:"""
LEARNING = f"""Learning, three seeds each. *Score* is held-out, *in training* the mean of updates;
± is Student's 95 % interval over seeds; *over `{REFERENCE}`* compares seed by seed."""


def finite(measured: Measured) -> dict[str, Any]:
    """The figures of an estimator on a process; JSON has no infinite number, it is null."""
    figures = dataclasses.asdict(measured)
    return {k: None if v == np.inf else v for k, v in figures.items()}


def measure_own(names: Sequence[str]) -> None:
    """Print every figure of these estimators, one JSON object per line."""
    import_from_here(*names)
    for name, measured in board(variants_of(names)):
        print(json.dumps({"estimator": name} | finite(measured)))


def main() -> None:
    """Measure what is named; else run what is missing if it is wanted, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("estimators", nargs="*", help="dotted paths; only these are measured")
    parser.add_argument("--curves", action="store_true", help="run what is missing")
    parser.add_argument("--env", action="append", choices=ENVS, help="only these")
    parser.add_argument("--report", action="store_true", help="without the exact part")
    parser.add_argument("--quick", action="store_true", help="smoke test in a temporary folder")
    args = parser.parse_args()
    if args.estimators:
        measure_own(args.estimators)
        return
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    folder = Path(tempfile.mkdtemp(prefix="credit-board-")) if args.quick else RESULTS
    stores = Stores(folder)
    if args.curves:
        run(args, stores, folder / "starts" if args.quick else common.CACHE / "credit-board")
    if not args.report:
        print(exact_part(folder / "credit-board-exact.json"))
    print(learning_part(stores.read()))
    draw(stores.read(), folder / "credit-board.png")


if __name__ == "__main__":
    main()
