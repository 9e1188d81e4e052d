"""Seconds per full GRPO step against plain TRL, and of its update with and without shared prefixes.

    python benchmarks/training_step.py [--case long] [--group 8] [--model smollm2] [--steps N]
        [--threads N] [--device cuda]

A step, rollout to optimizer, where TRL can do the same work (cases `turns` and `long`): both sides
train the same model with the same settings, ours with `GRPOEnvTrainer`, TRL's with `GRPOTrainer`
and a `rollout_func` that plays the same games through `_generate_single_turn`. The sides alternate;
the first step of each run warms up and is not counted. Peak memory is measured in a process for
each side. `ours_over_trl` is TRL's seconds per step over ours.

An update, in every case: within a step of training, forward and backward passes over the same
rollouts, once with each distinct prefix read once (the forest) and once with every row on its own,
alternating. There is no ratio unless both gradients are equal. `forest_over_rows` is the rows'
seconds over the forest's, `…_memory_mb` the most memory that an update adds to what the process
held before. The last line is one JSON object.
"""

import argparse
import ctypes
import dataclasses
import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import common
import numpy as np
import torch
from common import NEW_TOKENS, OBSERVED_TOKENS, Played
from transformers import TrainerCallback

from agentsgym.training.loss import forest

SIDES = ("ours", "trl")
KINDS = ("forest", "rows")
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.15}
"""How far the gradients may be from each other, relative to their norm. In bfloat16 each is itself
0.06 from the one in float32 (SmolLM2's preset), so `--dtype float32` shows that both are the same.
"""

# As templates of thinking models: only the answer remains of earlier turns, here its last word, and
# each step has its own thought, so each is a row of its own.
_DROPS_THOUGHTS = (
    "{% for m in messages %}"
    "{% if m['role'] == 'assistant' %}{{ '<|agent|>' + m['content'].split(' ')[-1] + '<|end|>' }}"
    "{% else %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|agent|><think>' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Case:
    """What is played and learned from: `opening_lines` of the first prompt, tokens that are
    `observed` and `sampled` in a turn, or the games and settings of a `preset`."""

    turns: int = 20
    rollouts: int = 64
    group: int = 8
    opening_lines: int = 1
    observed: int = OBSERVED_TOKENS
    sampled: int = NEW_TOKENS
    train_on: str = "rollout"
    template: str | None = None
    preset: str | None = None
    trl: bool = False
    """Whether TRL's own path can do the same work."""


CASES = {
    "turns": Case(trl=True),
    "long": Case(1, 32, 16, opening_lines=100, sampled=200, trl=True),
    "steps": Case(rollouts=16, observed=20, train_on="steps"),
    "thinking": Case(rollouts=16, observed=20, template=_DROPS_THOUGHTS),
    "quickstart": Case(preset="quickstart"),
    "smollm2": Case(preset="smollm2"),
}


def case_of(args: argparse.Namespace) -> Case:
    """The case with what the command line changes."""
    case = CASES[args.case]
    if args.model == "smollm2":  # a hundred times the work of the tiny model
        lines, sampled = min(50, case.opening_lines), min(100, case.sampled)
        case = dataclasses.replace(case, rollouts=4, group=4, opening_lines=lines, sampled=sampled)
    if args.quick:
        lines, turns = min(10, case.opening_lines), min(3, case.turns)
        small = {"opening_lines": lines, "turns": turns, "sampled": NEW_TOKENS}
        case = dataclasses.replace(case, rollouts=8, group=4, **small)
    given = {name: getattr(args, name) for name in ("turns", "rollouts", "group")}
    return dataclasses.replace(case, **{k: v for k, v in given.items() if v is not None})


class Clock(TrainerCallback):  # type: ignore[misc]
    """When each optimizer step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.cpu_ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        self.cpu_ends.append(time.process_time())


class Side:
    """A trainer on the games, and how long its parts take."""

    def __init__(self, side: str, args: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.case = case = case_of(args)
        self.model, tokenizer = _model(args)
        tokenizer.chat_template = case.template or tokenizer.chat_template
        games = common.make_games(
            tokenizer,
            case.rollouts // case.group,
            case.turns,
            observed=case.observed,
            opening_lines=case.opening_lines,
        )
        options = common.trainer_options() | {
            "max_steps": args.steps + 1,
            "per_device_train_batch_size": case.rollouts,
            "num_generations": case.group,
            "use_cpu": args.device == "cpu",
        }
        self.clock = Clock()
        self.work: list[Played] = []
        self.rollout_seconds: list[float] = []
        make = self._ours if side == "ours" else self._trl
        self.trainer = make(tokenizer, games, options)
        self.trainer.add_callback(self.clock)

    def _ours(self, tokenizer: Any, games: list[list[str]], options: dict[str, Any]) -> Any:
        from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, task_dataset
        from agentsgym.envs import make

        first = common.rows_of(games)[0]
        env = make("benchmarks/Talk", tokenizer, first["env_config"])
        data = task_dataset(env, [row["task_data"] for row in common.rows_of(games)])
        config = GRPOEnvConfig(
            **options, max_action_tokens=self.case.sampled, train_on=self.case.train_on
        )
        trainer = GRPOEnvTrainer(
            self.model, config, data, None, tokenizer, rollout_sink=self._keep_ours
        )
        self.rollout_seconds = common.time_calls(trainer.collector, "play")
        return trainer

    def _keep_ours(self, rollouts: Any, info: Any) -> None:
        rows = [row for rollout in rollouts for row in rollout.rows]
        self.work.append(_work([row.agent_token_mask.tolist() for row in rows]))

    def _trl(self, tokenizer: Any, games: list[list[str]], options: dict[str, Any]) -> Any:
        play = common.trl_rollout_func(games)

        def recorded(prompts: list[Any], trainer: Any) -> dict[str, Any]:
            start = time.perf_counter()
            output = play(prompts, trainer)
            self.rollout_seconds.append(time.perf_counter() - start)
            masks = [
                [0] * len(prompt) + mask
                for prompt, mask in zip(output["prompt_ids"], output["env_mask"], strict=True)
            ]
            self.work.append(_work(masks))
            return output

        options["max_completion_length"] = self.case.sampled
        return common.trl_trainer(self.model, tokenizer, games, recorded, **options)

    def run(self) -> dict[str, Any]:
        """Train; seconds per step and of its rollouts, without the first."""
        self.trainer.train()
        clock = self.clock
        return {
            "step": [b - a for a, b in itertools.pairwise(clock.ends)],
            "cpu": [b - a for a, b in itertools.pairwise(clock.cpu_ends)],
            "rollouts": self.rollout_seconds[1:],
            "work": self.work[-1].work,
            "dtype": str(self.model.dtype),
            "memory_mb": _peak_memory_mb(),
        }


def _model(args: argparse.Namespace) -> tuple[Any, Any]:
    """The model that `args` names, and its tokenizer."""
    default = "bfloat16" if args.device.startswith("cuda") else "float32"
    dtype = getattr(torch, args.dtype or default)
    if args.model == "tiny":
        return common.tiny()
    if args.model == "smollm2":
        return common.smollm2(dtype)
    return common.random_llama(float(args.model), args.device, dtype)


def _work(masks: list[list[int]]) -> Played:
    return Played(0.0, [(mask, mask) for mask in masks])


def _peak_memory_mb() -> float:
    # Not getrusage: its maximum comes along from the process that started this one.
    return torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else _mb("VmHWM")


def _mb(name: str) -> float:
    """A line of /proc/self/status."""
    found = re.search(rf"{name}:\s*(\d+)", Path("/proc/self/status").read_text())
    if found is None:
        raise RuntimeError(f"/proc/self/status names no {name}")
    return int(found[1]) / 1024


# -- a step beside TRL's ------------------------------------------------------------------------


def peak_memory(side: str) -> float:
    """Peak memory of one step of a side, in its own process."""
    command = [sys.executable, "-W", "ignore", *sys.argv, "--only", side, "--steps", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{side} failed: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["memory_mb"])


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Both sides in turn."""
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    cpu: dict[str, list[float]] = {side: [] for side in SIDES}
    rollouts: dict[str, list[float]] = {side: [] for side in SIDES}
    work: dict[str, Any] = {}
    for _ in range(args.repeats):
        for side in SIDES:
            trained = None
            common.release()
            trained = Side(side, args)
            result = trained.run()
            seconds[side] += result["step"]
            cpu[side] += result["cpu"]
            rollouts[side] += result["rollouts"]
            work[side] = (*result["work"], result["dtype"])
            for step, own in zip(result["step"], result["cpu"], strict=True):
                played = dataclasses.replace(trained.work[-1], seconds=step, cpu_seconds=own)
                common.describe(side, played, result["dtype"])
    common.demand_equal(work["ours"], work["trl"], "turns, sampled and observed tokens, dtypes")
    medians = {side: common.median(values) for side, values in seconds.items()}
    own = {side: common.median(values) for side, values in cpu.items()}
    breakdown = {"cpu_ours_over_trl": round(own["trl"] / own["ours"], 2)}
    for side in SIDES:
        playing = common.median(rollouts[side])
        breakdown[f"{side}_seconds_per_step"] = round(medians[side], 2)
        breakdown[f"{side}_seconds_rollouts"] = round(playing, 2)
        breakdown[f"{side}_seconds_update"] = round(medians[side] - playing, 2)
        if not args.quick:
            breakdown[f"{side}_peak_memory_mb"] = round(peak_memory(side))
    return {"ours_over_trl": round(medians["trl"] / medians["ours"], 2), **breakdown}


# -- an update with the forest and with rows ----------------------------------------------------


def compare_updates(args: argparse.Namespace) -> dict[str, Any]:
    """The first update of a training, several times in both ways before it goes on."""
    from agentsgym import GRPOEnvTrainer

    common.release()
    update, results = GRPOEnvTrainer.train_micro_batch, list[dict[str, Any]]()

    def compared(trainer: Any, model: Any, rollouts: Any) -> Any:
        def learn() -> Any:
            model.zero_grad(set_to_none=True)
            return update(trainer, model, rollouts)

        if not results:
            results.append(_of_update(learn, trainer, model, rollouts, args))
        return learn()

    with patch.object(GRPOEnvTrainer, "train_micro_batch", compared):
        _train(args)
    return results[0]


def _train(args: argparse.Namespace) -> None:
    """A step of the case's training: of a preset after what comes before it, its warm start."""
    from agentsgym.runs import load_config, train_run

    preset = case_of(args).preset
    if preset is None:
        Side("ours", argparse.Namespace(**vars(args) | {"steps": 0})).run()
        return
    with tempfile.TemporaryDirectory() as folder:
        changes = {
            "output_dir": f"{folder}/run",
            "train.max_steps": 1,
            "eval.rollouts": 8,
            "threads": args.threads,
            "signal_check": False,
        }
        if args.dtype:
            changes["model.dtype"] = args.dtype
        if args.quick:
            changes["train.per_device_train_batch_size"] = 16
        train_run(load_config(preset, changes))


def _of_update(
    learn: Callable[[], Any], trainer: Any, model: Any, rollouts: Any, args: argparse.Namespace
) -> dict[str, Any]:
    """What an update costs in both ways; `learn` makes it."""
    rows = [row for rollout in rollouts if rollout.in_loss for row in rollout.rows]
    gradients, read, memory = {}, {}, {}
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cpu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        with _learning_from(kind):
            learn()
            layouts = trainer.loss.layouts(model, rollouts)
        gradients[kind] = _gradient(model)
        read[f"{kind}_tokens_read"] = sum(layout.size for layout in layouts)
    difference = gradients["forest"] - gradients["rows"]
    gap = float(difference.norm() / gradients["rows"].norm())
    dtype = "bfloat16" if trainer.args.bf16 or model.dtype == torch.bfloat16 else "float32"
    if not gap <= TOLERANCE[dtype]:
        sys.exit(f"no ratio: gradients of the forest and of rows differ by {gap:.2g}")
    for _, kind in itertools.product(range(args.repeats), KINDS):
        with _learning_from(kind):
            watch = common.Stopwatch(args.device)
            learn()
        both = watch.read()
        seconds[kind].append(both[0])
        cpu[kind].append(both[1])
        tokens = [(row.token_ids, _mask(row)) for row in rows]
        common.describe(kind, Played(both[0], tokens, both[1]), dtype)
    for kind in KINDS:
        with _learning_from(kind):
            memory[f"{kind}_memory_mb"] = round(_added_memory_mb(learn))
    medians = {kind: common.median(values) for kind, values in seconds.items()}
    own = {kind: common.median(values) for kind, values in cpu.items()}
    return {
        "forest_over_rows": round(medians["rows"] / medians["forest"], 2),
        "cpu_forest_over_rows": round(own["rows"] / own["forest"], 2),
        "rows": len(rows),
        **read,
        "distinct_tokens": _distinct([row.token_ids.tolist() for row in rows]),
        **memory,
        "gradient_difference": float(f"{gap:.2g}"),
    }


def _mask(row: Any) -> list[int]:
    """1 for each token with loss."""
    mask = np.zeros(row.length, np.int64)
    mask[row.positions] = 1
    return list(mask.tolist())


def _learning_from(kind: str) -> AbstractContextManager[Any]:
    """Inside the block rows share prefixes where that pays, or never."""
    return nullcontext() if kind == "forest" else patch.object(forest, "PAYS_FROM", math.inf)


def _gradient(model: Any) -> torch.Tensor:
    parts = [p.grad.flatten().float() for p in model.parameters() if p.grad is not None]
    return torch.cat(parts)


def _distinct(rows: Sequence[list[int]]) -> int:
    """Tokens of the rows without the prefixes that a row shares with another one."""
    ordered = sorted(rows)
    shared = 0
    for one, other in itertools.pairwise(ordered):
        same = itertools.takewhile(lambda two: two[0] == two[1], zip(one, other, strict=False))
        shared += sum(1 for _ in same)
    return sum(map(len, ordered)) - shared


def _added_memory_mb(act: Callable[[], Any]) -> float:
    """How much higher than before the process's memory is at its peak within `act`."""
    common.release()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() / 2**20
    else:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what is free is not held
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _mb("VmRSS")
    act()
    return _peak_memory_mb() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_common_arguments(parser)
    parser.add_argument("--case", default="turns", choices=CASES)
    parser.add_argument("--steps", type=int, default=2, help="counted steps of a run")
    parser.add_argument("--repeats", type=int, default=2)
    for name in ("rollouts", "group", "turns"):
        parser.add_argument(f"--{name}", type=int, help="another number than the case's")
    parser.add_argument(
        "--model", default="tiny", choices=("tiny", "smollm2", *map(str, common.LLAMAS))
    )
    parser.add_argument("--dtype", help="float32 (CPU) or bfloat16 (CUDA), or the preset's own")
    parser.add_argument("--only", choices=SIDES, help="one side alone, for its memory")
    args = parser.parse_args()
    common.set_up(args)
    if args.only:
        common.finish(Side(args.only, args).run())
        return
    if args.quick:
        args.steps, args.repeats = 1, 1
    result: dict[str, Any] = {"device": common.device_name(args.device)}
    print(f"{args.case}: {result['device']}; torch {torch.__version__}")
    if CASES[args.case].trl:
        result |= compare(args)
    common.finish(result | compare_updates(args))


if __name__ == "__main__":
    main()
