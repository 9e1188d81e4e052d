"""Seconds per full GRPO step, rollout to optimizer, against plain TRL.

    python benchmarks/training_step.py [--model 0.5] [--steps N] [--threads N] [--device cuda]

Both sides train the same model with the same settings on 64 rollouts of 20 turns (8 new and 12
observed tokens), 8 rollouts to a game: ours with `GRPOEnvTrainer`, TRL's with `GRPOTrainer` and a
`rollout_func` that plays the same games through `_generate_single_turn`. The sides alternate; the
first step of each run warms up and is not counted. Peak memory is measured in a process for each
side. The last line is one JSON object; `ours_over_trl` is TRL's seconds per step over ours.
"""

import argparse
import dataclasses
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common
import torch
from common import NEW_TOKENS
from transformers import TrainerCallback

SIDES = ("ours", "trl")


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
        if args.model == "tiny":
            self.model, tokenizer = common.tiny()
        else:
            default = "bfloat16" if args.device.startswith("cuda") else "float32"
            dtype = getattr(torch, args.dtype or default)
            self.model, tokenizer = common.random_llama(float(args.model), args.device, dtype)
        games = common.make_games(tokenizer, args.rollouts // 8, args.turns)
        options = common.trainer_options() | {
            "max_steps": args.steps + 1,
            "per_device_train_batch_size": args.rollouts,
            "use_cpu": args.device == "cpu",
        }
        self.clock = Clock()
        self.work: list[common.Played] = []
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
        config = GRPOEnvConfig(**options, max_action_tokens=NEW_TOKENS)
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


def _work(masks: list[list[int]]) -> common.Played:
    return common.Played(0.0, [(mask, mask) for mask in masks])


def _peak_memory_mb() -> float:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    # Not getrusage: its maximum comes along from the process that started this one.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status names no VmHWM")


def peak_memory(side: str, args: argparse.Namespace) -> float:
    """Peak memory of one step of a side, in its own process."""
    command = [sys.executable, "-W", "ignore", __file__, "--only", side, "--steps", "1"]
    for name in ("device", "threads", "rollouts", "turns", "model", "dtype"):
        if (value := getattr(args, name)) is not None:
            command += [f"--{name}", str(value)]
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
    return {"ours_over_trl": round(medians["trl"] / medians["ours"], 2), **breakdown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_common_arguments(parser)
    parser.add_argument("--steps", type=int, default=2, help="counted steps of a run")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--model", default="tiny", choices=("tiny", *map(str, common.LLAMAS)))
    parser.add_argument("--dtype", help="of a Llama: float32 (CPU) or bfloat16 (CUDA) if left out")
    parser.add_argument("--only", choices=SIDES, help="one side alone, for its memory")
    args = parser.parse_args()
    common.set_up(args)
    if args.only:
        common.finish(Side(args.only, args).run())
        return
    if args.quick:
        args.steps, args.repeats, args.rollouts, args.turns = 1, 1, 8, 3
    result: dict[str, Any] = {"device": common.device_name(args.device)}
    print(f"{result['device']}; torch {torch.__version__}")
    result |= compare(args)
    if not args.quick:
        result |= {f"{side}_peak_memory_mb": round(peak_memory(side, args)) for side in SIDES}
    common.finish(result)


if __name__ == "__main__":
    main()
