"""A run in small: its whole configuration, with a random model of the same architecture.

Everything that needs no GPU, no server and no download is run: one warm start, one update, both
evaluations, and the files of the run, in a temporary directory. The embedded engine stands for
servers, and settings of a GPU are left out. The environment is played as it is, so one that asks a
server asks it.
"""

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import MissingExtra
from agentsgym.runs.estimate import model_shape
from agentsgym.runs.files import Summary
from agentsgym.runs.from_config import make_env, run_tasks, train_settings
from agentsgym.runs.launch import Launch, check_launch, on_any_machine
from agentsgym.runs.models.load import with_template
from agentsgym.runs.models.pretrained import in_hub_cache
from agentsgym.runs.policy import load_tokenizer
from agentsgym.runs.processes import processes_started
from agentsgym.runs.progress import Progress
from agentsgym.runs.settings import BUILTIN, TINY, RunConfig
from agentsgym.runs.train import train_run
from agentsgym.runs.warm_start import settings_of, warm_starts
from agentsgym.warm_start.settings import CHAT, WarmStartSettings

WIDTH, LAYERS, VOCABULARY = 64, 2, 512
TURNS, ACTION, ROLLOUTS = 3, 8, 4
_POSITIONS = 16384

_SMALL_TRAIN: dict[str, Any] = {
    "max_steps": 1,
    "per_device_train_batch_size": ROLLOUTS,
    "num_generations": 2,
    "gradient_accumulation_steps": 1,
    "max_action_tokens": ACTION,
    "save_strategy": "no",
    "eval_strategy": "no",
    "report_to": "none",
    "push_to_hub": False,
}
_LEFT_OUT = {
    "generation_batch_size",
    "steps_per_generation",
    "num_train_epochs",
    "min_signal_share",
    "max_staleness",
}
_ONE_PROCESS = Launch()


@dataclass(frozen=True, slots=True)
class DryRun:
    """The summary of the small run, the model that played in it, in words, whether the config.json
    of the real one is known, and what cannot be tried on this machine, with the reason."""

    summary: Summary
    model: str
    knows_shape: bool
    not_tried: list[str]


def dry_run(config: RunConfig, progress: Progress, launch: Launch = _ONE_PROCESS) -> DryRun:
    """Check all settings of a run and play and train one step of it in small, on the CPU.

    Nothing is written outside a temporary directory. Raises ConfigError for a wrong setting, and
    for settings that cannot work in the processes of `launch`.
    """
    if processes_started() == 1:  # otherwise who started them has checked it
        check_launch(config, launch)
    make_env(config)
    if warm_starts(config) or config.model.path == TINY:
        settings_of(config)
    shape, texts = None, []
    try:
        shape = model_shape(config).config
    except ConfigError as error:
        texts.append(str(error))
    with tempfile.TemporaryDirectory(prefix="agentsgym-dry-run-") as folder:
        small, model = _in_small(config, shape, Path(folder))
        summary = train_run(small, progress=progress)
    return DryRun(summary, model, shape is not None, [*texts, *_not_tried(config, launch)])


def _not_tried(config: RunConfig, launch: Launch) -> list[str]:
    """What this machine lacks for the real run, or what a dry run leaves out."""
    texts = []
    if launch.processes > 1:
        on = f" on {launch.machines} machines" if launch.machines > 1 else ""
        texts.append(
            f"{launch.processes} processes{on} with a GPU each: here {processes_started()} trained"
        )
    try:
        train_settings(config)
    except (ConfigError, MissingExtra) as error:
        texts.append(f"the run as it is configured, for here it ends with: {error}")
    return texts


def _in_small(config: RunConfig, shape: Any, folder: Path) -> tuple[RunConfig, str]:
    """The run with a small model and small numbers, and this model in words."""
    tokenizer, is_real = _tokenizer(config)
    model = _random_model(shape, tokenizer)
    path = folder / "model"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    # The small model does not have the layers that an adapter names.
    lora = config.model.lora and config.model.lora.model_copy(update={"layers_to_transform": None})
    section: dict[str, Any] = {"path": str(path), "revision": None, "lora": lora}
    if config.model.template_file is not None:  # its text is already in the tokenizer
        section["chat_template"] = "own"
    elif not is_real:  # any other template belongs to the model's own tokenizer
        section |= {"chat_template": "own", "chat_template_kwargs": {}}
    turns = min(TURNS, make_env(config).config.max_steps_per_episode)
    plain = on_any_machine(config)
    changes = {
        "model": plain.model.model_copy(update=section),
        "env_config": {**config.env_config, "max_steps_per_episode": turns},
        "train": _small_train(plain.train),
        "warm_start": _small_warm_start(config),
        "eval": config.eval.model_copy(update={"rollouts": 2, "rollouts_per_task": 1}),
        "max_seconds": None,
        "signal_check": False,  # random weights say nothing legal
        "output_dir": folder / "run",
    }
    whose = "its own tokenizer" if is_real else "a small tokenizer"
    words = f"a random {model.config.model_type} of {LAYERS} layers and width {WIDTH}, with {whose}"
    return plain.model_copy(update=changes), words


def _small_train(train: dict[str, Any]) -> dict[str, Any]:
    small = {key: value for key, value in train.items() if key not in _LEFT_OUT} | _SMALL_TRAIN
    if "8bit" in str(small.get("optim", "")):
        small.pop("optim")
    if small.get("max_rollout_tokens") is not None:
        small["max_rollout_tokens"] = _POSITIONS
    return small


def _small_warm_start(config: RunConfig) -> WarmStartSettings:
    """A few games of any reward, for in so few turns none may be won; none of an endpoint."""
    if not warm_starts(config) or config.warm_start.source == CHAT:
        return WarmStartSettings()
    few = {"min_reward": None, "games": 4, "best_of": 1, "probe_tasks": 1, "steps": 1}
    return config.warm_start.model_copy(update=few)


def _tokenizer(config: RunConfig) -> tuple[Any, bool]:
    """The model's own tokenizer if it is on this machine, otherwise a small one; and which."""
    from agentsgym.warm_start.tiny import build_tokenizer

    path = config.model.path
    local = path.startswith(BUILTIN) or Path(path).is_dir()
    if local or in_hub_cache(path, config.model.revision):
        with suppress(ConfigError):
            return load_tokenizer(config), True
    env = make_env(config)
    tasks = run_tasks(env, config.data, "train")
    texts = [str(tasks[i]["task_data"]) for i in range(min(16, len(tasks)))]
    tokenizer = build_tokenizer(texts, VOCABULARY, tools=env.offers_tools)
    return with_template(tokenizer, config.model), False


def _random_model(shape: Any, tokenizer: Any) -> Any:
    """A small model with random weights, of the same type if the model's config.json is known."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

    shape = shape or LlamaConfig()
    heads = shape.num_attention_heads
    kv_heads = max(1, 4 * (getattr(shape, "num_key_value_heads", None) or heads) // heads)
    small = AutoConfig.for_model(
        shape.model_type,
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=WIDTH // 4,
        max_position_embeddings=_POSITIONS,
        tie_word_embeddings=shape.tie_word_embeddings,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(small, dtype=torch.float32)
