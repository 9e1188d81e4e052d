"""What each way of assigning credit teaches, with the same budget of environment steps.

    python experiments/learning.py [--budget SECONDS] [--env NAME] [--setting NAME] [--quick]

Three environments whose best play is known, every estimator that applies, seeds 0 to 2: first all
cells with seed 0, then seed 1, then seed 2, so that a run that is cut short leaves a fair table.
Each cell starts from the same weights (the start of its setting), plays `env_steps` steps of
training tasks, and is then evaluated on held-out tasks. docs/results/learning.json holds the
results and is the state as well: cells that stand there are not run again (delete the file to
begin anew). At the end docs/results/learning.md and its pictures are written (`--report` does
only that). `--quick` is a smoke test of seconds per cell, in a temporary folder.

`score` is the mean reward of the scored episodes over held-out tasks, `ci95` its bootstrap
interval over tasks, `regret` what it falls short of the best player on the same tasks, `auc` the
mean score in training over all environment steps of the budget.
"""

import argparse
import fcntl
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import common
import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback

from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, make
from agentsgym.agents import DirectOutputAgent
from agentsgym.credit import credit_steps, table_of, to_tokens
from agentsgym.envs import EnvPool
from agentsgym.envs.known_game import known_play
from agentsgym.evaluation import assess, rollout_requests
from agentsgym.evaluation.metrics import record, summarize
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import play
from agentsgym.training.warm_start import warm_start
from agentsgym.training.warm_start_settings import TinySettings, WarmStartSettings
from agentsgym.types import Rollout, SamplingParams

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
QUICKSTART = ROOT / "src" / "agentsgym" / "presets" / "quickstart"
SEEDS = 3
EPISODE, CARRY, NO_CARRY = "one episode", "free shot, carry full", "free shot, carry none"
FREE_SHOT = {"episodes_per_trial": 2, "free_shots": 1}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    EPISODE: {},
    CARRY: {**FREE_SHOT, "carry": "full"},
    NO_CARRY: {**FREE_SHOT, "carry": "none"},
}


# -- what is compared -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """An environment and how it is trained; `player` makes the games of its start."""

    env_config: Mapping[str, Any]
    env_steps: int
    rollouts: int
    group: int
    learning_rate: float
    action_tokens: int
    eval_episodes: int
    player: type | None = None
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


@dataclass(frozen=True)
class Cell:
    """One run: where, in which setting, credited how, from which seed."""

    env: str
    setting: str
    estimator: str
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def env_config(self) -> dict[str, Any]:
        return {**RECIPES[self.env].env_config, **SETTINGS[self.setting]}

    @property
    def key(self) -> tuple[Any, ...]:
        return self.env, self.setting, label(self.estimator, self.options), self.seed


def label(estimator: str, options: Mapping[str, Any]) -> str:
    """The estimator as tables name it."""
    given = ", ".join(f"{name}={value:g}" for name, value in sorted(options.items()))
    return f"{estimator} ({given})" if given else estimator


def grid(seeds: int) -> Iterator[Cell]:
    """Every cell, the most important first."""
    for seed in range(seeds):
        for estimator in ("grpo", "rloo", "step_return", "gigpo", "trial"):
            for env in RECIPES:
                yield Cell(env, EPISODE, estimator, seed)
        for env in ("Bandit", "Mastermind"):
            yield Cell(env, CARRY, "trial", seed)
            yield Cell(env, CARRY, "grpo", seed)
            yield Cell(env, CARRY, "trial", seed, {"trial_gamma": 0.0})
            yield Cell(env, NO_CARRY, "trial", seed)
        yield Cell("Bandit", EPISODE, "reward", seed)
        for env in ("Bandit", "Mastermind"):
            yield Cell(env, CARRY, "step_return", seed)
            yield Cell(env, CARRY, "rloo", seed)


# -- starts ---------------------------------------------------------------------------------------


def start_of(cell: Cell, cache: Path) -> Path:
    """The folder of the weights that every estimator starts from in the cell's environment and
    setting; made where it is not there yet."""
    recipe = RECIPES[cell.env]
    if recipe.player is None:
        return QUICKSTART
    # Without carry the agent reads the same in a trial as in single episodes.
    setting = CARRY if cell.setting == CARRY else EPISODE
    folder = cache / cell.env / setting.replace(", ", "-").replace(" ", "-")
    if not (folder / "model.safetensors").exists():
        env = make(cell.env, None, {**recipe.env_config, **SETTINGS[setting]})
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
        made = warm_start(env, recipe.player(env), config)
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


def train(cell: Cell, model: Any, tokenizer: Any, quick: bool) -> Budget:
    """Train the model in place on the cell's budget."""
    recipe = RECIPES[cell.env]
    env = make(cell.env, tokenizer, cell.env_config)
    budget = Budget(200 if quick else recipe.env_steps)
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
        "advantage_estimator": cell.estimator,
        "advantage_options": dict(cell.options),
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
    trainer.train()
    return budget


_references: dict[tuple[str, str], float | None] = {}


def measure(cell: Cell, model: Any, tokenizer: Any, quick: bool) -> dict[str, Any]:
    """Score, interval, regret and reward per episode on held-out tasks."""
    recipe, pool = RECIPES[cell.env], EnvPool(tokenizer)
    rows = list(make(cell.env, None, cell.env_config).get_eval_dataset())
    requests = rollout_requests(rows, 32 if quick else recipe.eval_episodes, cluster=_task)
    engine = EmbeddedEngine(model.eval(), tokenizer, capacity=256)
    agent = DirectOutputAgent(engine, SamplingParams(recipe.action_tokens, 1.0))
    rollouts = play(requests, agent, pool)
    references = []
    for request in requests:
        key = cell.env + cell.setting, _task(request.task_data)
        if key not in _references:
            env = pool.of(request.env_class_path, request.env_config)
            _references[key] = known_play(env).reference_score(request.task_data)
        references.append(_references[key])
    evaluation = assess(rollouts, references, cluster=_task)
    by_episode = summarize([record(rollout) for rollout in rollouts])
    kept = ("episode_1/reward", "episode_2/reward", "exploration_gain", "malformed")
    return {
        "score": round(evaluation.reward, 4),
        "ci95": [round(bound, 4) for bound in evaluation.reward_ci95],
        "regret": None if evaluation.regret is None else round(evaluation.regret, 4),
        **{name: round(by_episode[name], 4) for name in kept if name in by_episode},
        "episodes": evaluation.episodes,
        "tasks": evaluation.tasks,
    }


def _task(task_data: Mapping[str, Any]) -> str:
    return json.dumps(task_data, sort_keys=True)


def result_of(cell: Cell, cache: Path, quick: bool) -> dict[str, Any]:
    """Carry out a cell (the estimator "start": only measure the start)."""
    torch.manual_seed(cell.seed)
    started, cpu = time.perf_counter(), time.process_time()
    model, tokenizer = load(start_of(cell, cache))
    result: dict[str, Any] = {
        "env": cell.env,
        "estimator": cell.estimator,
        "options": dict(cell.options),
        "setting": cell.setting,
        "seed": cell.seed,
        "env_steps": 0,
    }
    curve: dict[str, Any] = {"auc": None, "curve": []}
    if cell.estimator != "start":
        budget = train(cell, model, tokenizer, quick)
        result["env_steps"] = budget.used
        rewards = [(steps, round(reward, 4)) for steps, reward in budget.played]
        curve = {"auc": round(budget.auc, 4), "curve": rewards}
    result |= measure(cell, model, tokenizer, quick) | curve
    result["seconds"] = round(time.perf_counter() - started, 1)
    result["cpu_seconds"] = round(time.process_time() - cpu, 1)
    return result


# -- results on disk ------------------------------------------------------------------------------


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Several processes may append to the same results."""
    folder.mkdir(parents=True, exist_ok=True)
    with (Path(tempfile.gettempdir()) / "agentsgym-learning.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(folder: Path) -> list[dict[str, Any]]:
    """The results so far."""
    file = folder / "learning.json"
    results: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    return results


def append(folder: Path, result: Mapping[str, Any]) -> None:
    """One more result."""
    with locked(folder):
        lines = [json.dumps(entry) for entry in [*read(folder), result]]
        fresh = folder / "learning.json.tmp"
        fresh.write_text("[\n" + ",\n".join(lines) + "\n]\n")
        fresh.replace(folder / "learning.json")


def key_of(result: Mapping[str, Any]) -> tuple[Any, ...]:
    name = label(result["estimator"], result["options"])
    return result["env"], result["setting"], name, result["seed"]


def run(args: argparse.Namespace, folder: Path, cache: Path) -> None:
    """All cells that are not there yet, as far as the budget reaches."""
    began, longest = time.monotonic(), 0.0
    for cell in with_starts(args):
        if cell.key in {key_of(result) for result in read(folder)}:
            continue
        if args.budget and time.monotonic() - began + longest > args.budget:
            print("the budget is spent", flush=True)
            return
        cell_began = time.monotonic()
        result = result_of(cell, cache, args.quick)
        longest = max(longest, time.monotonic() - cell_began)
        append(folder, result)
        shown = {k: v for k, v in result.items() if k not in ("curve", "options")}
        print(json.dumps(shown | {"label": label(cell.estimator, cell.options)}), flush=True)


def with_starts(args: argparse.Namespace) -> Iterator[Cell]:
    """The chosen cells, and before the first of a setting the start that it is compared with."""
    seen = set()
    for cell in grid(1 if args.quick else args.seeds):
        if args.env and cell.env not in args.env:
            continue
        if args.setting and cell.setting not in args.setting:
            continue
        if (cell.env, cell.setting) not in seen:
            seen.add((cell.env, cell.setting))
            yield Cell(cell.env, cell.setting, "start")
        yield cell


# -- the noise of the gradient -------------------------------------------------------------------


NOISE = (
    ("rloo", {}),
    ("trial", {}),
    ("grpo", {}),
    ("step_return", {}),
    ("trial", {"trial_gamma": 0.0}),
)


def noise(cache: Path, groups: int) -> dict[str, Any]:
    """How noisy each estimator's gradient is for the bandit's trials at their start.

    The same groups for all: the summed variance of one group's gradient (Σ advantage · ∇ log p over
    agent tokens, per rollout), and this over the squared length of the mean gradient, from which
    its own noise is taken off: how many groups have to be averaged until signal equals noise.
    """
    cell = Cell("Bandit", CARRY, "start")
    recipe = RECIPES[cell.env]
    model, tokenizer = load(start_of(cell, cache))
    rows = list(make(cell.env, None, cell.env_config).get_train_dataset())
    requests = rollout_requests(
        rows, groups * recipe.group, rollouts_per_task=recipe.group, seed=1, cluster=_task
    )
    engine = EmbeddedEngine(model.eval(), tokenizer, capacity=256)
    agent = DirectOutputAgent(engine, SamplingParams(recipe.action_tokens, 1.0))
    rollouts = play(requests, agent, EnvPool(tokenizer))
    estimators: dict[str, Any] = {}
    for estimator, options in NOISE:
        steps = credit_steps(table_of(rollouts), estimator, **options)
        credit = to_tokens([row for rollout in rollouts for row in rollout.rows], steps)
        size = recipe.group
        parts = [
            _gradient(model, rollouts[k : k + size], credit[k : k + size])
            for k in range(0, len(rollouts), size)
        ]
        gradients = torch.stack(parts)
        variance = float(gradients.var(dim=0).sum())
        signal = float(gradients.mean(dim=0).square().sum()) - variance / groups
        estimators[label(estimator, options)] = {
            "variance": variance,
            "signal": signal,
            "groups_until_signal": variance / signal if signal > 0 else None,
        }
    return {"env": cell.env, "setting": cell.setting, "groups": groups, "estimators": estimators}


def _gradient(model: Any, rollouts: Sequence[Rollout], credit: Sequence[Any]) -> torch.Tensor:
    """The gradient of one group, flat; each of its rollouts is one row."""
    model.zero_grad()
    for rollout, advantages in zip(rollouts, credit, strict=True):
        ids = torch.tensor([rollout.rows[0].token_ids])
        logps = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        chosen = logps.gather(1, ids[0, 1:, None])[:, 0]
        weights = torch.tensor(advantages[1:], dtype=chosen.dtype) / len(rollouts)
        (chosen * weights).sum().backward()
    grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat(grads).clone()


# -- the report -----------------------------------------------------------------------------------


def report(folder: Path) -> None:
    """Write learning.md and a picture per environment from the results."""
    results = read(folder)
    lines = [
        "# What each way of assigning credit teaches",
        "",
        "Written by `python experiments/learning.py` from `learning.json` (`--report` writes it "
        "again); the module's docstring says what is measured, its `RECIPES` how each environment "
        "is trained. One torch thread per process; several processes may share the grid.",
        "",
        "All cells of an environment and setting start from the same weights (the row *start*) and "
        "spend the same budget of environment steps. A row is the mean over its seeds; `n` says "
        "how many there are. The interval is the bootstrap over held-out tasks, its ends averaged "
        "over the seeds: it holds the luck of the tasks, not that of training, for which see the "
        "spread of the seeds. **Bold**: the interval lies above the start's. `regret` is against "
        "the best player on the same tasks, `auc` the mean score over training.",
    ]
    for env in RECIPES:
        here = [result for result in results if result["env"] == env]
        if here:
            draw(here, env, folder / f"learning-{env}.png")
            lines += ["", f"## {env}", "", _recipe_line(env), "", *_table(here)]
            lines += ["", f"![{env}](learning-{env}.png)"]
    lines += [*_noise_lines(folder), *_remarks(folder)]
    (folder / "learning.md").write_text("\n".join(lines) + "\n")


def _noise_lines(folder: Path) -> list[str]:
    """The noise of the gradient, where it was measured (`--noise`)."""
    file = folder / "learning-noise.json"
    if not file.exists():
        return []
    entry = json.loads(file.read_text())
    base = entry["estimators"]["rloo"]["variance"]
    lines = [
        "",
        "## Noise of the gradient",
        "",
        f"{entry['env']}, {entry['setting']}, at the start, the same {entry['groups']} groups for "
        "all (`--noise`): the summed variance of one group's gradient, over that of `rloo`, and "
        "how many groups have to be averaged until the gradient is as long as its noise. `rloo` "
        "and `trial` estimate the same gradient; `grpo` scales it, credit per episode leaves the "
        "free shot's part out.",
        "",
        "| estimator | variance | groups until signal = noise |",
        "|---|---|---|",
    ]
    for name, values in entry["estimators"].items():
        until = values["groups_until_signal"]
        shown = "the signal is not told from noise" if until is None else f"{until:.0f}"
        lines.append(f"| {name} | {values['variance'] / base:.2f} | {shown} |")
    return lines


def _remarks(folder: Path) -> list[str]:
    """What a person found out about the figures, kept beside them."""
    file = folder / "learning-remarks.md"
    return ["", file.read_text().strip()] if file.exists() else []


def _recipe_line(env: str) -> str:
    recipe = RECIPES[env]
    config = ", ".join(f"{name}={value}" for name, value in recipe.env_config.items())
    start = "`builtin:quickstart`"
    if recipe.player is not None:
        games = 32 * recipe.start_updates
        player = " ".join((recipe.player.__doc__ or "").split()).rstrip(".")
        start = f"a tiny model that read {games:,} games of a careless player ({player})"
    return (
        f"`{config}`; {recipe.env_steps:,} environment steps in updates on {recipe.rollouts} "
        f"rollouts in groups of {recipe.group}, learning rate {recipe.learning_rate:g}; "
        f"{recipe.eval_episodes} held-out episodes at temperature 1. Start: {start}."
    )


def grouped(results: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Results by (setting, label), the starts first, the settings in their order."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for setting in SETTINGS:
        for start in (True, False):
            for result in results:
                if result["setting"] == setting and (result["estimator"] == "start") == start:
                    name = label(result["estimator"], result["options"])
                    groups.setdefault((setting, name), []).append(result)
    return groups


def mean(results: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Mean over seeds, of each end where it is an interval; None where it is not known."""
    values = [result.get(name) for result in results]
    if any(value is None for value in values):
        return None
    means = np.mean(values, axis=0)
    return means.tolist()


def _table(results: Sequence[dict[str, Any]]) -> list[str]:
    groups = grouped(results)
    names = ("regret", "auc", "episode_1/reward", "episode_2/reward", "exploration_gain")
    heads = ("setting", "estimator", "n", "score", "95 %", "seeds", *names)
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for (setting, name), members in groups.items():
        low, high = mean(members, "ci95")
        score, start = f"{mean(members, 'score'):.3f}", groups.get((setting, "start"))
        if start and low > start[0]["ci95"][1]:
            score = f"**{score}**"
        seeds = ", ".join(f"{m['score']:.3f}" for m in sorted(members, key=lambda m: m["seed"]))
        rest = [_number(mean(members, key)) for key in names]
        cells = [setting, name, str(len(members)), score, f"{low:.3f} to {high:.3f}", seeds, *rest]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def draw(results: Sequence[dict[str, Any]], env: str, file: Path) -> None:
    """Final scores with intervals, and the curves of training, a column per setting."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = grouped(results)
    settings = [s for s in SETTINGS if any(setting == s for setting, _ in groups)]
    figure, axes = plt.subplots(
        2, len(settings), figsize=(5.2 * len(settings), 7), squeeze=False, layout="constrained"
    )
    names = sorted({name for _, name in groups if name != "start"})
    colors = {name: f"C{number}" for number, name in enumerate(names)} | {"start": "0.4"}
    for column, setting in enumerate(settings):
        here = {name: members for (where, name), members in groups.items() if where == setting}
        _draw_scores(axes[0][column], here, colors)
        _draw_curves(axes[1][column], here, colors)
        axes[0][column].set_title(setting)
    for row in axes:
        limits = [bound for axis in row for bound in axis.get_ylim()]
        for axis in row:
            axis.set_ylim(min(limits), max(limits))
    figure.suptitle(env)
    figure.savefig(file, dpi=80)
    plt.close(figure)


def _draw_scores(axis: Any, groups: Mapping[str, Sequence[Any]], colors: Any) -> None:
    for place, (name, members) in enumerate(groups.items()):
        (low, high), score = mean(members, "ci95"), mean(members, "score")
        axis.errorbar(
            place, score, [[score - low], [high - score]], fmt="o", capsize=4, color=colors[name]
        )
        seeds = [m["score"] for m in members]
        axis.plot([place + 0.15] * len(seeds), seeds, "_", color=colors[name])
        if name == "start":
            axis.axhspan(low, high, color="0.9", zorder=0)
    axis.set_xticks(range(len(groups)), groups, rotation=30, ha="right")
    axis.set_ylabel("held-out score, 95 %")


def _draw_curves(axis: Any, groups: Mapping[str, Sequence[Any]], colors: Any) -> None:
    for name, members in groups.items():
        if name == "start":
            continue
        curves = [np.array(m["curve"]) for m in members]
        grid_steps = np.linspace(0, min(curve[:, 0].sum() for curve in curves), 25)[1:]
        smooth = [_smoothed(curve, grid_steps) for curve in curves]
        axis.plot(grid_steps, np.mean(smooth, axis=0), color=colors[name], label=name)
    axis.set_xlabel("environment steps")
    axis.set_ylabel("score in training")
    axis.legend(fontsize=7)


def _smoothed(curve: Any, at: Any) -> Any:
    """Mean score since an eighth of the budget before, at each number of steps."""
    steps = np.cumsum(curve[:, 0])
    total = np.concatenate([[0.0], np.cumsum(curve[:, 0] * curve[:, 1])])
    sums = np.interp(at, np.concatenate([[0.0], steps]), total)
    before = np.maximum(at - at[-1] / 8, 0)
    earlier = np.interp(before, np.concatenate([[0.0], steps]), total)
    return (sums - earlier) / (at - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--budget", type=float, help="begin no cell that may end after this, s")
    parser.add_argument("--env", action="append", choices=list(RECIPES), help="only these")
    parser.add_argument("--setting", action="append", choices=list(SETTINGS), help="only these")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="smoke test in a temporary folder")
    parser.add_argument("--noise", action="store_true", help="only measure gradient noise")
    parser.add_argument("--report", action="store_true", help="only write the page again")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    folder = Path(tempfile.mkdtemp(prefix="learning-quick-")) if args.quick else RESULTS
    cache = folder / "starts" if args.quick else common.CACHE / "learning"
    if not args.report and not args.noise:
        run(args, folder, cache)
    if args.noise:
        measured = noise(cache, 4 if args.quick else 64)
        (folder / "learning-noise.json").write_text(json.dumps(measured, indent=1) + "\n")
    with locked(folder):
        report(folder)
    print(folder / "learning.md")


if __name__ == "__main__":
    sys.exit(main())
