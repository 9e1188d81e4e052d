"""How much faster the engine makes the quickstart (`make demo`).

    python benchmarks/demo.py [--steps N] [--threads N]

The quickstart's RL is run twice from the shipped checkpoint by the same trainer with the same
seed: once with the embedded engine, once with rollouts sampled by TRL's own
`_generate_single_turn`, which reads the whole history again every turn. The sides sample with
noise of their own, so games differ while tasks and numbers of games agree; `ours_over_trl_rollouts`
therefore compares seconds per sampled token. `ours_over_trl` compares whole optimizer steps. The
last line is one JSON object.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import common
import torch

from agentsgym import GRPOEnvConfig, GRPOEnvTrainer
from agentsgym.runs.config import RunConfig
from agentsgym.runs.config_sources import load_config
from agentsgym.runs.from_config import datasets_of, make_env
from agentsgym.runs.policy import load_policy
from agentsgym.runs.progress import Silent
from agentsgym.types import EngineStats, GenerationRequest, GenerationResult, WeightUpdate


class TurnEngine:
    """An engine over TRL's `_generate_single_turn`: all open requests in one batch."""

    capacity = 256
    stats = EngineStats()
    can_generate_ahead = False

    def __init__(self, tokenizer: Any) -> None:
        self.policy_version = 0
        self.tokenizer = tokenizer
        self.trainer: Any = None
        self.waiting: list[GenerationRequest] = []

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        self.waiting += requests

    def poll(self) -> list[GenerationResult]:
        requests, self.waiting = self.waiting, []
        if not requests:
            return []
        contexts = [list(request.token_ids) for request in requests]
        answers, _ = self.trainer._generate_single_turn(contexts, None, {}, 1)
        return [
            GenerationResult(
                request.session_id,
                tuple(ids),
                (0.0,) * len(ids),  # TRL's path has none
                self.tokenizer.decode(ids, skip_special_tokens=True),
            )
            for request, ids in zip(requests, answers, strict=True)
        ]

    def cancel(self, session_ids: Sequence[str]) -> None: ...

    def release(self, session_ids: Sequence[str]) -> None: ...

    def update_weights(self, update: WeightUpdate) -> None:
        self.policy_version = update.version  # TRL samples from the trained model itself

    def finish(self) -> None: ...

    def close(self) -> None: ...


class Side:
    """The quickstart's RL with one of the engines."""

    def __init__(
        self, config: RunConfig, steps: int, folder: str, device: str, *, trl: bool
    ) -> None:
        policy = load_policy(config, Silent())
        data, _ = datasets_of(make_env(config))
        settings = config.train | {"max_steps": steps, "output_dir": folder}
        args = GRPOEnvConfig(
            **settings,
            max_completion_length=config.train["max_action_tokens"],
            sampler_correction="none",  # one side has no log-probabilities of its sampler
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            use_cpu=device == "cpu",
            disable_tqdm=True,
        )
        engine: Any = TurnEngine(policy.tokenizer) if trl else None
        self.trainer = GRPOEnvTrainer(
            policy.model,
            args,
            data,
            processing_class=policy.tokenizer,
            engine=engine,
            rollout_sink=self._keep,
        )
        if trl:
            engine.trainer = self.trainer
        self.played: list[common.Played] = []
        self.wins: list[float] = []
        self.rollout_seconds = common.time_calls(self.trainer.collector, "train")

    def _keep(self, rollouts: Any, info: Any) -> None:
        masks = [list(row.agent_token_mask) for rollout in rollouts for row in rollout.rows]
        self.played.append(common.Played(0.0, [(mask, mask) for mask in masks]))
        self.wins.append(sum(bool(rollout.episodes[0].win) for rollout in rollouts) / len(rollouts))

    def run(self) -> dict[str, float]:
        """Train; seconds in all and of the rollouts, what was played, wins of the last steps."""
        started = time.perf_counter()
        self.trainer.train()
        seconds = time.perf_counter() - started
        last = self.wins[-5:]
        return {
            "seconds": seconds,
            "rollouts": sum(self.rollout_seconds),
            "games": float(sum(len(played.rows) for played in self.played)),
            "turns": float(sum(played.turns for played in self.played)),
            "sampled": float(sum(played.sampled for played in self.played)),
            "wins": sum(last) / len(last),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_common_arguments(parser)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    common.set_up(args)
    steps = 2 if args.quick else args.steps
    result: dict[str, Any] = {"device": common.device_name(args.device), "steps": steps}
    print(f"{result['device']}; torch {torch.__version__}")
    found = {}
    for side in ("ours", "trl"):
        with tempfile.TemporaryDirectory() as folder:
            config = load_config("quickstart")
            found[side] = Side(config, steps, folder, args.device, trl=side == "trl").run()
        figures = ", ".join(f"{key} {value:.4g}" for key, value in found[side].items())
        print(f"  {side}: {figures}; {args.threads} threads")
    ours, trl = found["ours"], found["trl"]
    common.demand_equal((ours["games"],), (trl["games"],), "numbers of games")
    per_token = {side: values["rollouts"] / values["sampled"] for side, values in found.items()}
    common.finish(
        result
        | {
            "ours_over_trl": round(trl["seconds"] / ours["seconds"], 2),
            "ours_over_trl_rollouts": round(per_token["trl"] / per_token["ours"], 2),
            "ours_seconds_per_step": round(ours["seconds"] / steps, 2),
            "trl_seconds_per_step": round(trl["seconds"] / steps, 2),
            "ours_last_wins": round(ours["wins"], 3),
            "trl_last_wins": round(trl["wins"], 3),
        }
    )


if __name__ == "__main__":
    main()
