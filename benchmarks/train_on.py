"""Time of an optimizer step and tokens through the model, train_on="rollout" against "steps".

    python benchmarks/train_on.py [--rollouts N] [--turns N] [--repeats N]

One batch of games of 20 turns (8 new and 12 observed tokens a turn) is played once by a tiny model
without an update; then both modes take optimizer steps on these very rollouts, in turns, each from
the same weights. Only `training_step` and the optimizer are timed, generation is not. The last
line is one JSON object with the ratios.
"""

import argparse
import copy
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import common
import torch

MODES = ("rollout", "steps")


class Side:
    """A trainer in one mode, and what it costs."""

    def __init__(self, mode: str, args: argparse.Namespace) -> None:
        from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, task_dataset
        from agentsgym.envs import make

        torch.manual_seed(0)
        model, tokenizer = common.tiny()
        rows = common.rows_of(common.make_games(tokenizer, args.rollouts // 8, args.turns))
        env = make("benchmarks/Talk", tokenizer, rows[0]["env_config"])
        options = common.trainer_options() | {
            "per_device_train_batch_size": args.rollouts,
            "max_steps": 1,
            "max_tokens_per_forward": args.max_tokens,
            "use_cpu": True,
            "train_on": mode,
        }
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self.trainer = GRPOEnvTrainer(
            model,
            GRPOEnvConfig(**options, max_action_tokens=common.NEW_TOKENS),
            task_dataset(env, [row["task_data"] for row in rows]),
            None,
            tokenizer,
        )
        self.trainer.create_optimizer_and_scheduler(num_training_steps=1000)
        self.inputs = self._play(args.rollouts)
        self.weights = copy.deepcopy(self.trainer.model.state_dict())

    def _play(self, rollouts: int) -> dict[str, Any]:
        """The games, played and credited once; every step then takes them as its batch."""
        trainer, number = self.trainer, self.trainer.num_generations
        rows = [trainer.train_dataset[i // number] for i in range(rollouts)]
        inputs: dict[str, Any] = trainer._generate_and_score_completions(rows)
        trainer.weigh_rollouts([inputs["rollouts"]])
        trainer._prepare_inputs = lambda _: inputs
        return inputs

    @property
    def tokens(self) -> int:
        """Tokens that pass through the model in one optimizer step, without padding."""
        return sum(row.length for rollout in self.inputs["rollouts"] for row in rollout.rows)

    @property
    def agent_tokens(self) -> int:
        return sum(row.agent_tokens for r in self.inputs["rollouts"] for row in r.rows)

    def step(self) -> None:
        """One optimizer step from the first weights."""
        trainer = self.trainer
        trainer.model.load_state_dict(self.weights)
        started, cpu = time.perf_counter(), time.process_time()
        trainer.training_step(trainer.model, self.inputs)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        self.seconds.append(time.perf_counter() - started)
        self.cpu_seconds.append(time.process_time() - cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rollouts", type=int, default=32, help="a multiple of 8")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=4096, help="of one forward pass")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sides = {mode: Side(mode, args) for mode in MODES}
    rollout, steps = (sides[mode] for mode in MODES)
    common.demand_equal((rollout.agent_tokens,), (steps.agent_tokens,), "agent tokens")
    for repeat in range(args.repeats + 1):
        for side in sides.values():
            side.step()
            if repeat == 0:  # warms up
                side.seconds.clear()
                side.cpu_seconds.clear()
    wall = [common.median(side.seconds) for side in (rollout, steps)]
    cpu = [common.median(side.cpu_seconds) for side in (rollout, steps)]
    common.finish(
        {
            "benchmark": "train_on",
            "rollouts": args.rollouts,
            "turns": args.turns,
            "agent_tokens": rollout.agent_tokens,
            "tokens": {"rollout": rollout.tokens, "steps": steps.tokens},
            "seconds_per_step": dict(zip(MODES, (round(s, 3) for s in wall), strict=True)),
            "cpu_seconds_per_step": dict(zip(MODES, (round(s, 3) for s in cpu), strict=True)),
            "steps_over_rollout_tokens": round(steps.tokens / rollout.tokens, 2),
            "steps_over_rollout_seconds": round(wall[1] / wall[0], 2),
            "steps_over_rollout_cpu_seconds": round(cpu[1] / cpu[0], 2),
        }
    )


if __name__ == "__main__":
    main()
