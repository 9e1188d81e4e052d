"""Which tasks are sampled and what is trained on again: updates until the hard tasks of a mix are
learned, with each of `zero_signal_groups` and `curriculum`.

    python experiments/sampling_tasks.py [--seeds N]

A task shows a key, and one byte is the answer. Of 32 tasks 8 are easy (any letter or digit earns 1,
62 of 259 tokens), 8 hard (one of 6 letters of that key earns 1), and 16 impossible. A tiny random
model trains on 4 groups of 8 answers per update. After each update the probability of a right
answer to the hard tasks is computed exactly; a run ends where its mean reaches 0.5, or after 400
updates. Prints a JSON line for each run and the table, and writes
docs/results/sampling-tasks.json; what stands there is not computed again.
"""

import argparse
import json
import os
import random
import string
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    PrinterCallback,
    TrainerCallback,
)

from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, register
from agentsgym.envs.dataset import ListedTasks
from agentsgym.envs.settings import EnvSettings
from agentsgym.evaluation.intervals import t_quantile
from agentsgym.types import Rollout

STORED = Path(__file__).parents[1] / "docs" / "results" / "sampling-tasks.json"
KINDS = {"easy": 8, "hard": 8, "impossible": 16}
EASY = string.ascii_letters + string.digits
THRESHOLD, MOST_UPDATES = 0.5, 400
ARMS: dict[str, dict[str, Any]] = {
    "keep": {},
    "resample": {"zero_signal_groups": "resample", "max_resample_rounds": 2},
    "replay": {"zero_signal_groups": "replay"},
    "curriculum: kind": {"curriculum": "kind"},
    "curriculum: task": {"curriculum": "task"},
    "curriculum: task, replay": {"curriculum": "task", "zero_signal_groups": "replay"},
}


def right_answers(kind: str, number: int) -> str:
    """The bytes that earn 1."""
    letters = random.Random(f"key-{number}").sample(string.ascii_letters, 6)
    return {"easy": EASY, "hard": "".join(letters), "impossible": ""}[kind]


class KeysEnv(ListedTasks):
    """One prompt, one answer. `task_data` is `{"kind": str, "number": int}`."""

    class Settings(EnvSettings):
        max_steps_per_episode: int = 1

    def _tasks(self, held_out: bool) -> Iterable[Mapping[str, Any]]:
        return [{"kind": kind, "number": k} for kind, size in KINDS.items() for k in range(size)]

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        return dict(task_data)

    def _format_prompt(self, state: dict[str, Any], step: int) -> str:
        return f"{state['kind'][0]}{chr(65 + state['number'])}"

    def _step_episode(
        self, session_id: str, state: dict[str, Any], action: str
    ) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        win = bool(action) and action in right_answers(state["kind"], state["number"])
        return state, float(win), True, {"win": win}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each byte, and three more."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: k for k, token in enumerate(["<pad>", "<user>", "<agent>", *alphabet])}
    core = Tokenizer(models.BPE(vocab=ids, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<pad>",
        additional_special_tokens=["<user>", "<agent>"],
        chat_template="{% for m in messages %}{{ '<user>' if m['role'] == 'user' else '<agent>' }}"
        "{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<agent>{% endif %}",
    )


def random_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


class UntilLearned(TrainerCallback):  # type: ignore[misc]
    """Computes what the hard tasks earn, and ends training where it is `THRESHOLD`."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        prompts = [f"<user>h{chr(65 + k)}<agent>" for k in range(KINDS["hard"])]
        self._ids = torch.tensor(tokenizer(prompts, add_special_tokens=False)["input_ids"])
        self._right = torch.zeros(KINDS["hard"], len(tokenizer))
        for k in range(KINDS["hard"]):
            right = tokenizer.convert_tokens_to_ids(list(right_answers("hard", k)))
            self._right[k, right] = 1.0
        self.scores: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        with torch.no_grad():
            chances = torch.softmax(model(input_ids=self._ids).logits[:, -1], -1)
        self.scores.append(float((chances * self._right).sum(-1).mean()))
        control.should_training_stop |= self.scores[-1] >= THRESHOLD


def run(arm: str, seed: int) -> dict[str, Any]:
    """Train one arm with one seed."""
    tokenizer, played, began = byte_tokenizer(), [0], time.process_time()
    register("Keys", KeysEnv)
    env, until = KeysEnv(tokenizer), UntilLearned(tokenizer)

    def count(rollouts: list[Rollout], info: Mapping[str, Any]) -> None:
        played[0] += len(rollouts)

    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "output_dir": folder, "seed": seed, "max_steps": MOST_UPDATES, "num_generations": 8,
            "per_device_train_batch_size": 32, "max_action_tokens": 1, "learning_rate": 3e-3,
            "lr_scheduler_type": "constant", "advantage_estimator": "rloo", "loss_type": "dapo",
            "min_signal_share": 0.0, "report_to": "none", "save_strategy": "no", "use_cpu": True,
            "logging_steps": 10_000, "disable_tqdm": True, "gradient_checkpointing": False,
        }  # fmt: skip
        trainer = GRPOEnvTrainer(
            random_model(tokenizer, seed),
            GRPOEnvConfig(**(options | ARMS[arm])),
            env.get_train_dataset(),
            None,
            tokenizer,
            rollout_sink=count,
            callbacks=[until],
        )
        trainer.remove_callback(PrinterCallback)
        resampled, resample = [0], trainer._resample

        def counted(requests: Any, rollouts: Any, signal: Any, round_: int) -> Any:
            resampled[0] += int((~signal).sum())
            return resample(requests, rollouts, signal, round_)

        trainer._resample = counted
        trainer.train()
    return {
        "arm": arm,
        "seed": seed,
        "updates": len(until.scores),
        "learned": until.scores[-1] >= THRESHOLD,
        "score": round(until.scores[-1], 3),
        "rollouts": played[0] + resampled[0],
        "cpu_seconds": round(time.process_time() - began, 1),
    }


# -- the tables ---------------------------------------------------------------------------------


def student(values: list[float]) -> str:
    """Mean and half-width of the 95 % interval; the mean alone of fewer than three."""
    if len(values) < 3:
        return f"{np.mean(values):,.0f}"
    half = t_quantile(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):,.0f} ± {half:,.0f}"


def table(results: list[dict[str, Any]]) -> str:
    """A line for each arm; ± over seeds, of arms with three."""
    lines = [
        "| arm | seeds | updates | each | rollouts played | learned |",
        "|---|---|---|---|---|---|",
    ]
    for arm in ARMS:
        if own := [result for result in results if result["arm"] == arm]:
            each = ", ".join(str(result["updates"]) for result in own)
            lines.append(
                f"| `{arm}` | {len(own)} | {student([r['updates'] for r in own])} | {each} | "
                f"{student([r['rollouts'] for r in own])} | {sum(r['learned'] for r in own)} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    given = parser.parse_args()
    stored = STORED
    results = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else []
    known = {(result["arm"], result["seed"]) for result in results}
    cells = [(arm, seed) for seed in range(given.seeds) for arm in ARMS]
    for cell in cells:
        if cell not in known:
            results.append(run(*cell))
            print(json.dumps(results[-1]), flush=True)
        lines = ",\n".join(json.dumps(r) for r in sorted(results, key=_place))
        stored.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(table(sorted(results, key=_place)))


def _place(result: dict[str, Any]) -> tuple[int, int]:
    return list(ARMS).index(result["arm"]), result["seed"]


if __name__ == "__main__":
    main()
