"""Variance of the gradient of a tiny language model, in trials of the environment Explore.

    python experiments/variance_model.py [--free N] [--scored N] [--groups N]
        [--updates N] [--quick]

A tiny model is warm-started on the careless teacher (looks in 15 % of its rounds, uses what it saw
in 70 %), and plays groups of 8 trials of some free shots and scored episodes. From the same
rollouts, for each estimator: the summed variance of one group's gradient (Σ advantage · ∇ log p
over agent tokens, per rollout) over that of `rloo` on the score, with the 95 % interval of
resampled groups. Then again after some updates with `trial_cv`, with the CPU seconds of its extra
forward passes as a share of these updates. The last line is one JSON object.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import common
import numpy as np
import torch

from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, make
from agentsgym.agents import DirectOutputAgent
from agentsgym.credit import credit_steps, table_of, to_tokens
from agentsgym.envs import EnvPool
from agentsgym.evaluation import rollout_requests
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import play
from agentsgym.types import Rollout, SamplingParams
from agentsgym.warm_start.new_model import warm_start
from agentsgym.warm_start.settings import TinySettings, WarmStartSettings

SIZE = 8
ESTIMATORS = ("rloo", "trial", "trial_cv")


def start(env: Any, updates: int) -> Any:
    """A tiny model that plays like the teacher, and its tokenizer."""
    shape = TinySettings(hidden_size=96, layers=2, intermediate_size=192, max_positions=1024)
    config = WarmStartSettings(
        steps=updates,
        batch_size=32,
        games_per_round=640,
        tokenizer_games=320,
        learning_rate=3e-3,
        model=shape,
    )
    return warm_start(env, env.teacher_agent(), config)


def trainer_of(env: Any, made: Any, updates: int) -> GRPOEnvTrainer:
    """A trainer with `trial_cv`: 128 rollouts an update."""
    options = common.trainer_options() | {
        "output_dir": tempfile.mkdtemp(),
        "num_generations": SIZE,
        "per_device_train_batch_size": 128,
        "learning_rate": 1e-3,
        "max_steps": updates,
        "advantage_estimator": "trial_cv",
        "max_action_tokens": 8,
        "use_cpu": True,
        "shuffle_dataset": True,
    }
    rows = env.get_train_dataset()
    return GRPOEnvTrainer(made.model, GRPOEnvConfig(**options), rows, None, made.tokenizer)


def variances(trainer: GRPOEnvTrainer, env: Any, groups: int) -> dict[str, Any]:
    """Each estimator's variance over that of rloo, with an interval."""
    model, tokenizer = trainer.model.eval(), trainer.processing_class
    rows = list(env.get_eval_dataset())
    requests = rollout_requests(rows, groups * SIZE, rollouts_per_task=SIZE, seed=1, cluster=_task)
    agent = DirectOutputAgent(
        EmbeddedEngine(model, tokenizer, capacity=128), SamplingParams(8, 1.0)
    )
    rollouts = play(requests, agent, EnvPool(tokenizer))
    choices = trainer.choices.choices_of(rollouts, model) if trainer.choices else []
    table = table_of(rollouts, choices)
    credits = [to_tokens([r.rows[0] for r in rollouts], credit_steps(table, e)) for e in ESTIMATORS]
    parts = [
        _gradients(model, rollouts[k : k + SIZE], [c[k : k + SIZE] for c in credits])
        for k in range(0, len(rollouts), SIZE)
    ]
    spread = [torch.stack([p[e] for p in parts]) for e in range(len(ESTIMATORS))]
    squared = [((g - g.mean(0)) ** 2).sum(1).numpy() for g in spread]
    score = float(np.mean([r.final_reward for r in rollouts]))
    free = [e for r in rollouts for e in r.episodes if not e.score_weight]
    steps = [s.info.get("informing", False) for e in free for s in e.steps]
    return {
        "score": round(score, 3),
        "looks_in_free_shots": round(float(np.mean(steps)), 3),
        **{
            name: _ratio(own, squared[0])
            for name, own in zip(ESTIMATORS[1:], squared[1:], strict=True)
        },
        "trial_cv_over_trial": _ratio(squared[2], squared[1]),
    }


def _task(task: Any) -> Any:
    return task["seed"]


def _ratio(one: Any, other: Any) -> list[float]:
    """Ratio of means, and its 95 % interval over resampled groups."""
    rng = np.random.default_rng(0)
    picks = rng.integers(len(one), size=(2000, len(one)))
    ratios = one[picks].mean(1) / other[picks].mean(1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return [round(float(x), 3) for x in (one.mean() / other.mean(), low, high)]


def _gradients(
    model: Any, rollouts: Sequence[Rollout], credits: Sequence[Sequence[Any]]
) -> list[torch.Tensor]:
    """A group's gradient for each estimator, flat; each rollout is one row."""
    length = max(len(r.rows[0].token_ids) for r in rollouts)
    ids = torch.zeros(len(rollouts), length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, rollout in enumerate(rollouts):
        own = rollout.rows[0].token_ids
        ids[i, : len(own)], mask[i, : len(own)] = torch.tensor(own), 1
    logps = model(input_ids=ids, attention_mask=mask).logits[:, :-1].log_softmax(-1)
    chosen = logps.gather(2, ids[:, 1:, None])[..., 0]
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = []
    for credit in credits:
        weights = torch.zeros_like(chosen)
        for i, values in enumerate(credit):
            weights[i, : len(values) - 1] = torch.tensor(values[1:]) / len(rollouts)
        parts = torch.autograd.grad((chosen * weights).sum(), parameters, retain_graph=True)
        gradients.append(torch.cat([part.flatten() for part in parts]))
    return gradients


def updated(trainer: GRPOEnvTrainer) -> dict[str, float]:
    """Train; return the CPU seconds of all updates and the share of the extra forward passes."""
    scorer = trainer.choices
    assert scorer is not None
    seconds, whole = 0.0, scorer.choices_of

    def timed(*given: Any) -> Any:
        nonlocal seconds
        began = time.process_time()
        try:
            return whole(*given)
        finally:
            seconds += time.process_time() - began

    scorer.choices_of = timed  # type: ignore[method-assign]
    began = time.process_time()
    trainer.train()
    total = time.process_time() - began
    return {"cpu_seconds": round(total, 1), "share_of_choices": round(seconds / total, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--free", type=int, default=1)
    parser.add_argument("--scored", type=int, default=4)
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--warm-start", type=int, default=400, help="its updates")
    parser.add_argument("--quick", action="store_true", help="figures mean nothing")
    args = parser.parse_args()
    if args.quick:
        args.groups, args.updates, args.warm_start = 4, 1, 2
    torch.set_num_threads(1)
    trial = {"episodes_per_trial": args.free + args.scored, "free_shots": args.free}
    env = make("Explore", None, trial | {"explain_actions": False})
    made = start(env, args.warm_start)
    trainer = trainer_of(env, made, args.updates)
    result: dict[str, Any] = {"free": args.free, "scored": args.scored, "groups": args.groups}
    result["start"] = variances(trainer, env, args.groups)
    print(result, flush=True)
    result["training"] = updated(trainer)
    result["later"] = variances(trainer, env, args.groups)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
