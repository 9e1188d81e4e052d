"""All that the golden records take from inside the package. If something moves, adjust it here.

`parts.py` uses public names, the command line and this file only.
"""

import contextlib
import io
import os
import random
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback

from agentsgym import DirectOutputAgent, GRPOEnvConfig, GRPOEnvTrainer, SamplingParams
from agentsgym.agents import RandomAgent
from agentsgym.generation import EmbeddedEngine
from agentsgym.runs.files import read_stored
from agentsgym.types.reward_placement import per_token_rewards

# -- tokenizers and models (nothing of the package) -----------------------------------------------

_TEXTS = [
    "Is it an animal? Can it fly? Yes. No. I don't know. [apple] [chair] [clock] [banana]",
    "The number is higher. The number is lower. 0 1 2 3 4 5 6 7 8 9 guess the number",
    "Let's play Twenty Questions. I am thinking of something. You have 20 turns left.",
]
_OPEN = "<|im_start|>"
_CONTENT = {
    "append": "",
    # Drops what an assistant thought in all turns but the last.
    "thoughts": "{% if m['role'] == 'assistant' and '</think>' in c %}"
    "{% set c = c.split('</think>')[-1] %}{% endif %}",
    # Shortens what an assistant said in all turns but the last.
    "shortens": "{% if m['role'] == 'assistant' and not loop.last %}{% set c = c[:2] %}{% endif %}",
}


def tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 400 tokens; `template` is a key of _CONTENT, or None for no template."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        _TEXTS,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<pad>", _OPEN, "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    chat = None
    if template is not None:
        chat = (
            "{% for m in messages %}{% set c = m['content'] %}" + _CONTENT[template] + _OPEN + "{{ "
            "m['role'] }}\n{{ c }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
            + _OPEN
            + "assistant\n{% endif %}"
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        additional_special_tokens=[_OPEN],
        chat_template=chat,
    )


def llama(tok: PreTrainedTokenizerFast, width: int = 32, spread: float = 0.02) -> LlamaForCausalLM:
    """A Llama of two layers with random weights, always the same."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tok),
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            initializer_range=spread,
            pad_token_id=tok.pad_token_id,
            bos_token_id=None,
            eos_token_id=tok.eos_token_id,
        )
    ).eval()


# -- agents ---------------------------------------------------------------------------------------


def engine_agent(tok: PreTrainedTokenizerFast, max_tokens: int = 8) -> Any:
    """A random Llama through the embedded engine."""
    return DirectOutputAgent(EmbeddedEngine(llama(tok), tok), SamplingParams(max_tokens=max_tokens))


def random_agent(env: Any, seed: int) -> Any | None:
    """The random player of admissible actions; None where the environment lists none."""
    return RandomAgent(env, seed=seed) if RandomAgent.can_play(env) else None


class DrawingAgent:
    """Says one of some lines; which one depends on the conversation alone."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def get_action(self, messages: Sequence[Mapping[str, str]], state: Any) -> tuple[str, Any]:
        turn = int(state or 0)
        text = "".join(message["content"] for message in messages)
        return random.Random(f"{turn} {text}").choice(self._lines), turn + 1


# -- what was played ------------------------------------------------------------------------------


def rows_of(batch: Any) -> dict[str, list[Any]]:
    """All rows of a batch, by column."""
    rows = batch.rows
    return {
        "ids": [[int(x) for x in row.token_ids] for row in rows],
        "mask": [[int(x) for x in row.agent_token_mask] for row in rows],
        "logprobs": [[float(x) for x in row.logprobs] for row in rows],
        "rewards": [
            [float(x) for x in rewards]
            for rollout in batch.rollouts
            for rewards in per_token_rewards(rollout)
        ],
        "where": [(row.group, row.rollout, row.begins, row.rewrites, row.sampled) for row in rows],
        "spans": [[(s.episode, s.step, s.start, s.stop) for s in row.spans] for row in rows],
        "per rollout": list(batch.rows_per_rollout),
    }


def outcome_of(rollout: Any) -> dict[str, Any]:
    """What a rollout came to, step by step."""
    return {
        "error": (rollout.error or "").strip().rpartition("\n")[2],
        "seed": rollout.seed,
        "task": rollout.task_data,
        "episodes": [
            {
                "index": episode.index,
                "weight": float(episode.score_weight),
                "stop": episode.stop_reason,
                "reward": float(episode.reward),
                "steps": [
                    {
                        "observation": step.observation,
                        "action": step.action,
                        "reward": float(step.reward),
                        "penalty": float(step.penalty),
                        "flags": [step.done, step.malformed, step.truncated, step.kind],
                        "anchor": step.anchor,
                        "info": dict(step.info),
                    }
                    for step in episode.steps
                ],
            }
            for episode in rollout.episodes
        ],
    }


def stored_rollouts(run: Path, phase: str) -> list[dict[str, Any]]:
    """Tokens, rewards and advantages of all rollouts that a run stored."""
    return [
        {
            "step": line.step,
            "session": line.rollout.session_id,
            "ids": [list(row.token_ids) for row in line.rollout.rows],
            "mask": [list(row.agent_token_mask) for row in line.rollout.rows],
            "logprobs": [[float(x) for x in row.logprobs] for row in line.rollout.rows],
            "reward": float(line.rollout.final_reward),
            "advantages": None
            if line.advantages is None
            else [[float(x) for x in row] for row in line.advantages],
        }
        for line in read_stored(run, phase)
    ]


# -- the trainer ----------------------------------------------------------------------------------


class OtherWeights(EmbeddedEngine):
    """Samples from weights that stay as they are, so that the sampler's ratio is not 1."""

    def update_weights(self, update: Any) -> None:
        self.reset()
        self.policy_version = update.version


class Gradients(TrainerCallback):
    """Keeps the gradient of each optimizer step."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
        self.seen.append(torch.cat([g.reshape(-1) for g in grads]).double().clone())


def gradients(
    rows: Any, model_dir: Path, tok: PreTrainedTokenizerFast, out: Path, options: dict[str, Any]
) -> tuple[list[torch.Tensor], list[dict[str, Any]]]:
    """The gradient of each optimizer step and the log; in float64, sampled by other weights."""
    model = LlamaForCausalLM.from_pretrained(model_dir, dtype=torch.float64)
    sampler = llama(tok, 16, spread=0.1)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for parameter in sampler.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(parameter.std() * 0.5 * noise)
    seen = Gradients()
    trainer = GRPOEnvTrainer(
        model,
        GRPOEnvConfig(output_dir=str(out), report_to="none", use_cpu=True, bf16=False, **options),
        rows,
        processing_class=tok,
        engine=OtherWeights(sampler, tok),
        callbacks=[seen],
    )
    trainer.train()
    return seen.seen, trainer.state.log_history


# -- the command line -----------------------------------------------------------------------------


def command(*arguments: str | Path) -> str:
    """`agentsgym ARGUMENTS` in a process of its own; what it printed."""
    line = [sys.executable, "-m", "agentsgym", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, env=os.environ, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(line)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def command_here(*arguments: str | Path) -> str:
    """The same in this process, which saves the imports; what it printed."""
    printed, errors = io.StringIO(), io.StringIO()
    with (
        _arguments(["agentsgym", *map(str, arguments)]),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        try:
            runpy.run_module("agentsgym", run_name="__main__")
        except SystemExit as end:
            if end.code:
                text = f"{arguments} ended with {end.code}:\n{errors.getvalue()[-2000:]}"
                raise RuntimeError(text) from end
    return printed.getvalue()


@contextlib.contextmanager
def _arguments(values: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, values
    try:
        yield
    finally:
        sys.argv = before
