"""A real model, SmolLM2-135M: what bfloat16 gains, what TRL takes, what an update costs at least.

    python benchmarks/real_model.py [--rollouts N] [--turns N] [--threads N] [--repeats N]

Every side trains the same float32 weights on the same games with the same settings: ours and TRL's
own path (its `_generate_single_turn` and its `_compute_loss`), in float32 and under bfloat16
autocast as accelerate sets it (TRL samples under it too, ours from a copy in bfloat16). The sides
alternate in one process, and the figures so far follow each round; the first round warms up. Times
are CPU seconds of the process. The last line, one JSON object, has ratios only if turns and tokens
agree. The floor of an update is a bare forward and backward pass over the same rows in the same
chunks, with the output layer on agent tokens alone. Peaks of memory are measured in a process each,
of one update of a Llama of SmolLM2's width with 4 layers.

With --vllm-python, the Python of an environment that has vLLM, also the seconds that a run needs to
bring its weights to a vLLM server (weight_sync.py).
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import common
import torch
from common import NEW_TOKENS
from weight_sync import weight_sync

CONTEXTS = (1024, 2048, 4096, 8192)
VOCABULARIES = (49_152, 150_000)
AGENT_TOKENS = 256


@contextmanager
def cpu_seconds(into: list[float]) -> Iterator[None]:
    """Append the CPU seconds of the block."""
    start = time.process_time()
    yield
    into.append(time.process_time() - start)


class Times(dict[str, list[float]]):
    """CPU seconds of each part."""

    def timed(self, part: str) -> Any:
        return cpu_seconds(self.setdefault(part, []))

    def keep_last(self) -> None:
        """Forget the rounds that warmed up."""
        for seconds in self.values():
            del seconds[:-1]

    def of(self, part: str) -> float:
        return common.median(self[part])


def load(args: argparse.Namespace) -> tuple[Any, Any]:
    """The model in float32, and its tokenizer."""
    return common.tiny() if args.model == "tiny" else common.smollm2(torch.float32)


def options_of(args: argparse.Namespace, bf16: bool) -> dict[str, Any]:
    batch = {"per_device_train_batch_size": args.rollouts, "num_generations": args.rollouts}
    return common.trainer_options() | batch | {"bf16": bf16, "use_cpu": True, "max_steps": 1}


class Ours:
    """GRPOEnvTrainer: its rollouts, log-probabilities and update, one by one."""

    def __init__(self, args: argparse.Namespace, bf16: bool) -> None:
        from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, task_dataset
        from agentsgym.envs import make

        model, tokenizer = load(args)
        games = common.make_games(tokenizer, 1, args.turns)
        self.rows = common.rows_of(games)
        env = make("benchmarks/Talk", tokenizer, self.rows[0]["env_config"])
        data = task_dataset(env, [row["task_data"] for row in self.rows])
        config = GRPOEnvConfig(**options_of(args, bf16), max_action_tokens=NEW_TOKENS)
        self.trainer = GRPOEnvTrainer(model, config, data, None, tokenizer)
        self.rollouts, self.bf16, self.times, self.step = args.rollouts, bf16, Times(), 0
        self.played: Any = None

    def run(self) -> None:
        """A generation and its update, without the optimizer."""
        from agentsgym.training.advantages import GenerationAdvantages

        trainer, self.step = self.trainer, self.step + 1
        requests = trainer.collector.train_requests(self.rows * self.rollouts, self.step)
        with self.times.timed("weights"):
            trainer.push_weights(self.step)
        with self.times.timed("rollouts"):
            self.played = trainer.collector.train(requests)
        credit = GenerationAdvantages(self.played, trainer.args, trainer.ranks)
        trained = credit.train_rollouts()
        trainer.weigh_rollouts([trained])
        rows = [row for rollout in trained for row in rollout.rows]
        with self.times.timed("logprobs"):
            trainer.loss.scorer.logps_of(rows, trainer.model)
        trainer.model.train()
        with self.times.timed("update"):
            trainer.train_on(trainer.model, trained)
        trainer.model.zero_grad()
        with self.times.timed("floor"):
            self._bare(trainer.loss.scorer.chunks(rows, rows))
        trainer.model.zero_grad()

    def _bare(self, chunks: Any) -> None:
        """Forward and backward passes and nothing else."""
        from agentsgym.training.loss.chunks import collate

        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        for rows in chunks:
            chunk = collate(rows, self.trainer.tokenizer.pad_token_id, torch.device("cpu"))
            with autocast(self.bf16):
                hidden = model.model(chunk.input_ids, attention_mask=chunk.attention_mask)[0]
                wanted = chunk.labels[:, 1:]
                agent = wanted >= 0
                logits = model.lm_head(hidden[:, :-1][agent])
            torch.nn.functional.cross_entropy(logits.float(), wanted[agent]).backward()

    @property
    def work(self) -> common.Played:
        rows = [row for rollout in self.played for row in rollout.rows]
        pairs = [(list(row.token_ids), list(row.agent_token_mask)) for row in rows]
        return common.Played(self.times["rollouts"][-1], pairs, self.times["rollouts"][-1])


class Theirs:
    """TRL's GRPOTrainer with a `rollout_func`: its rollouts and its loss with the backward pass."""

    def __init__(self, args: argparse.Namespace, bf16: bool) -> None:
        model, tokenizer = load(args)
        games = common.make_games(tokenizer, 1, args.turns)
        play = common.trl_rollout_func(games)
        self.bf16, self.times = bf16, Times()
        self.played: list[tuple[list[int], list[int]]] = []

        def recorded(prompts: list[Any], trainer: Any) -> dict[str, Any]:
            with self.times.timed("rollouts"):
                output = play(prompts, trainer)
            self.played = [
                (prompt + ids, [0] * len(prompt) + mask)
                for prompt, ids, mask in zip(
                    output["prompt_ids"],
                    output["completion_ids"],
                    output["env_mask"],
                    strict=True,
                )
            ]
            return output

        self.trainer = common.trl_trainer(
            model, tokenizer, games, recorded, **options_of(args, bf16)
        )
        self.trainer.current_gradient_accumulation_steps = 1  # which its training loop sets
        prompt = [{"role": "user", "content": games[0][0]}]
        self.inputs = [{"prompt": prompt} for _ in range(args.rollouts)]

    def run(self) -> None:
        """A generation and its update, without the optimizer."""
        trainer = self.trainer
        trainer.model.train()
        batch = trainer._generate_and_score_completions(self.inputs)
        with self.times.timed("update"):
            trainer._compute_loss(trainer.model, batch).backward()
        trainer.model.zero_grad()

    @property
    def work(self) -> common.Played:
        return common.Played(self.times["rollouts"][-1], self.played, self.times["rollouts"][-1])


def autocast(bf16: bool) -> Any:
    """bfloat16 as accelerate sets it, or nothing."""
    return torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else nullcontext()


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """All sides in turn; the first round of each warms up."""
    kinds: dict[str, Callable[[argparse.Namespace, bool], Any]] = {"ours": Ours, "trl": Theirs}
    sides = {(k, bf16): make(args, bf16) for bf16 in (False, True) for k, make in kinds.items()}
    for round_ in range(args.repeats + 1):
        for (kind, bf16), side in sides.items():
            side.run()
            common.describe(kind, side.work, torch.bfloat16 if bf16 else torch.float32)
            if round_ == 1:
                side.times.keep_last()
        print(f"  after round {round_}: {json.dumps(_figures(sides))}", flush=True)
    works = {name: side.work.work for name, side in sides.items()}
    for name, work in works.items():
        common.demand_equal(work, works["ours", False], f"turns and tokens of {name}")
    return _figures(sides)


def _figures(sides: dict[tuple[str, bool], Any]) -> dict[str, Any]:
    plain, mixed = sides["ours", False].times, sides["ours", True].times
    found: dict[str, Any] = {}
    for part in ("rollouts", "logprobs", "update"):
        found[f"bfloat16_over_float32_{part}"] = round(plain.of(part) / mixed.of(part), 2)
    for name, bf16 in (("float32", False), ("bfloat16", True)):
        ours, trl = sides["ours", bf16].times, sides["trl", bf16].times
        found |= {f"{name}_seconds_{part}": round(ours.of(part), 2) for part in ours}
        for part in ("rollouts", "update"):
            found[f"ours_over_trl_{part}_{name}"] = round(trl.of(part) / ours.of(part), 2)
        found[f"update_over_floor_{name}"] = round(ours.of("floor") / ours.of("update"), 2)
    return found


# -- memory -------------------------------------------------------------------------------------


def one_update(context: int, vocabulary: int, agent_tokens: int) -> float:
    """Peak resident MB of one update on a row of `context` tokens, `agent_tokens` of them ours."""
    import numpy as np
    from accelerate import Accelerator
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    from agentsgym.training.distributed import Ranks
    from agentsgym.training.loss.batch import TrainRow
    from agentsgym.training.loss.logprobs import Scorer

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=context,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    accelerator = Accelerator(cpu=True)
    mask = (0,) * (context - agent_tokens) + (1,) * agent_tokens
    ids = tuple(1 + i % 900 for i in range(context))
    row = TrainRow(ids, mask, (0.0,) * context, (), True, np.ones(context))
    scores = Scorer(accelerator, Ranks(accelerator), 0, context).forward(model, [row])
    scores.logps.sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak_mb(context: int, vocabulary: int, agent_tokens: int) -> int:
    """`one_update` in its own process."""
    arguments = [str(number) for number in (context, vocabulary, agent_tokens)]
    command = [sys.executable, "-W", "ignore", __file__, "--peak", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the update at {arguments} failed: {done.stderr[-2000:]}")
    return round(json.loads(done.stdout.splitlines()[-1])["peak_mb"])


def memory(quick: bool) -> dict[str, Any]:
    """Peaks against the context, the vocabulary and the number of agent tokens."""
    contexts = (512, 1024) if quick else CONTEXTS
    few, small = (64, 1000) if quick else (AGENT_TOKENS, VOCABULARIES[0])
    found = {f"peak_mb_context_{n}": peak_mb(n, small, few) for n in contexts}
    if not quick:
        first, last = CONTEXTS[0], VOCABULARIES[1]
        found[f"peak_mb_vocabulary_{last}"] = peak_mb(first, last, AGENT_TOKENS)
        found[f"peak_mb_vocabulary_{last}_one_agent_token"] = peak_mb(first, last, 1)
        found[f"mb_of_all_logits_{last}"] = round(first * last * 4 / 2**20)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_common_arguments(parser)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", default="smollm2", choices=("smollm2", "tiny"))
    parser.add_argument("--skip-comparison", action="store_true")
    parser.add_argument("--skip-memory", action="store_true")
    parser.add_argument("--vllm-python", metavar="PATH", help="also measure the weight sync")
    parser.add_argument("--peak", type=int, nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    common.set_up(args)
    if args.peak:
        torch.set_num_threads(1)
        common.finish({"peak_mb": one_update(*args.peak)})
        return
    if args.quick:
        args.model, args.rollouts, args.turns, args.repeats = "tiny", 4, 2, 1
    result: dict[str, Any] = {"device": common.device_name("cpu"), "model": args.model}
    print(f"{result['device']}; torch {torch.__version__}")
    if not args.skip_comparison:
        result |= compare(args)
    if not args.skip_memory:
        result |= memory(args.quick)
    result |= weight_sync(args)
    common.finish(result)


if __name__ == "__main__":
    main()
