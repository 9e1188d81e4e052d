"""Builds the checkpoint that the preset `quickstart` starts from.

    python scripts/build_quickstart.py [--output DIR] [--steps N]

A warm start from nothing, with the settings of `warm_start` in `presets/quickstart.yaml`, on the
tasks that the preset trains on (held-out tasks are never played). One torch thread, so that the
result can be repeated. `figures.json` beside the weights keeps what is printed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import MultistepEnv
from agentsgym.envs.twenty_questions import TwentyQuestionsEnv
from agentsgym.generation import EmbeddedEngine
from agentsgym.types import RolloutBatch, SamplingParams
from agentsgym.warm_start.new_model import WarmStartResult, warm_start
from agentsgym.warm_start.settings import WarmStartSettings

PRESETS = Path(__file__).resolve().parent.parent / "src/agentsgym/presets"
MAX_BYTES = 4 * 2**20
EVAL_ROLLOUTS = 2


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    preset = yaml.safe_load((PRESETS / "quickstart.yaml").read_text(encoding="utf-8"))
    given = dict(preset["warm_start"])
    if arguments.steps is not None:
        given["steps"] = arguments.steps
    env = TwentyQuestionsEnv(None, preset["env_config"])
    seed = given.get("seed", 0)
    started = time.monotonic()
    result = warm_start(
        env,
        env.teacher_agent(seed=seed),
        WarmStartSettings.model_validate(given),
        seed,
        progress=lambda *report: show(started, *report),
    )
    seconds = time.monotonic() - started
    figures = describe(result, env, given, seconds)
    print(json.dumps(figures, indent=2))
    save(result, figures, arguments.output)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=PRESETS / "quickstart")
    parser.add_argument("--steps", type=int, help="updates, instead of the preset's")
    return parser.parse_args()


def show(started: float, step: int, steps: int, values: Mapping[str, float]) -> None:
    if step % 50:
        return
    print(
        f"{step:5d}/{steps}  {time.monotonic() - started:6.0f} s  loss {values['loss']:.3f}",
        flush=True,
    )


def describe(
    result: WarmStartResult, env: TwentyQuestionsEnv, given: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """What `figures.json` holds: how the model was made, what it knows, and how well it plays."""
    tasks = list(env.get_eval_dataset()["task_data"])
    player = TwentyQuestionsEnv(result.tokenizer, env.env_config)
    engine = EmbeddedEngine(result.model, result.tokenizer, capacity=256)
    model = DirectOutputAgent(engine, SamplingParams(max_tokens=12))
    own = player.run_trial(tasks, model, EVAL_ROLLOUTS)
    return {
        **{key: round(value, 4) for key, value in result.figures.items()},
        "seconds": round(seconds, 1),
        "tokens": token_counts(result.tokenizer, env),
        "model": play_figures(own),
        "teacher": play_figures(play(env, env.teacher_agent(seed=1), tasks)),
        "optimal": play_figures(play(env, env.optimal_agent(), tasks)),
        "env_config": env.env_config,
        "warm_start": given,
    }


def play(env: MultistepEnv, agent: Any, tasks: list[dict[str, Any]]) -> RolloutBatch:
    return env.run_trial(tasks, agent, EVAL_ROLLOUTS)


def play_figures(batch: RolloutBatch) -> dict[str, float]:
    """Win rate and mean steps on the held-out tasks."""
    games = [rollout.episodes[0].steps for rollout in batch.rollouts]
    return {
        "win_rate": round(sum(steps[-1].info["win"] for steps in games) / len(games), 4),
        "mean_steps": round(sum(len(steps) for steps in games) / len(games), 2),
        "rollouts": len(games),
    }


def token_counts(tokenizer: Any, env: TwentyQuestionsEnv) -> dict[str, float]:
    """Mean number of tokens of a question, an answer and a guess of the table."""
    attributes = env.table.attributes
    kinds = {
        "question": [a.question for a in attributes],
        "answer": [t for a in attributes for t in (f"Yes, {a.phrase}.", f"No, not {a.phrase}.")],
        "guess": [f"[{secret}]" for secret in env.table.secrets],
    }
    return {
        kind: round(sum(len(tokenizer.encode(text)) for text in texts) / len(texts), 3)
        for kind, texts in kinds.items()
    }


def save(result: WarmStartResult, figures: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    result.model.save_pretrained(folder)
    result.tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    (folder / "figures.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    size = sum(entry.stat().st_size for entry in folder.iterdir())
    print(f"{folder}: {size / 2**20:.2f} MB")
    if size > MAX_BYTES:
        raise SystemExit(f"the checkpoint has {size} bytes, more than the {MAX_BYTES} allowed")


if __name__ == "__main__":
    main()
