"""A run in small: the run itself, with one step, small numbers and random weights.

Everything that needs no GPU and no server is run: one warm start, one update, both evaluations, and
the files of the run, in a temporary directory. The embedded engine stands for servers, and settings
of a GPU are left out. The environment is played as it is, so one that asks a server asks it.
"""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import MissingExtra
from agentsgym.runs import Progress
from agentsgym.runs.auto import resolved
from agentsgym.runs.estimate import model_shape, on_any_machine
from agentsgym.runs.from_config import make_env, train_settings
from agentsgym.runs.models import Use, load_tokenizer
from agentsgym.runs.processes import Launch, check_processes, processes_started
from agentsgym.runs.settings import TINY, RunConfig
from agentsgym.runs.train import train_run
from agentsgym.runs.trust import resume_command
from agentsgym.warm_start.settings import CHAT, WarmStartSettings
from agentsgym.warm_start.tiny import build_tokenizer

_POSITIONS = 16384
_LAYERS, _WIDTH = 2, 64
_TRAIN: dict[str, Any] = {
    "max_steps": 1,
    "per_device_train_batch_size": 4,
    "num_generations": 2,
    "gradient_accumulation_steps": 1,
    "max_action_tokens": 8,
    "max_rollout_tokens": _POSITIONS,
    "save_strategy": "no",
    "eval_strategy": "no",
    "report_to": "none",
    "push_to_hub": False,
}
_LEFT_OUT = {"generation_batch_size", "steps_per_generation", "num_train_epochs"}
_LEFT_OUT |= {"min_signal_share", "max_staleness", "optim"}  # some optimizers need a GPU
# In so few turns no game may be won.
_WARM_START = {"min_reward": None, "games": 4, "best_of": 1, "probe_tasks": 1, "steps": 1}


def check_launch(config: RunConfig, launch: Launch) -> int:
    """The rollouts in a generation of all processes. Raises ConfigError for a wrong setting, and
    for what cannot work with this launch."""
    from agentsgym.training import GRPOEnvConfig

    config = resolved(config, Progress())
    if config.warm_starts or config.model.path == TINY:
        config.warm_start_settings()
    name = "per_device_train_batch_size"
    own = config.train.given.get(name, GRPOEnvConfig.per_device_train_batch_size)
    together = own * launch.processes if type(own) is int else own
    train = config.train.changed({name: together})
    try:
        settings = train_settings(on_any_machine(config.model_copy(update={"train": train})))
    except ConfigError as error:
        if launch.processes == 1:
            raise
        raise ConfigError(f"the rollouts of {launch.processes} processes: {error}") from None
    check_processes(config, launch, settings)
    return int(settings.generation_batch_size)


def dry_run(config: RunConfig, progress: Progress, launch: Launch) -> list[str]:
    """Check all settings of a run, and play and train one step of it in small, on the CPU. Nothing
    is kept. Returns what was run, and what was not tried, with the reason.

    Raises ConfigError for a wrong setting, and for what cannot work with this launch.
    """
    config = resolved(config, progress)
    if processes_started() == 1:  # otherwise who started them has checked it
        check_launch(config, launch)
    shape, not_tried = None, []
    try:
        shape = model_shape(config).config
    except ConfigError as error:
        not_tried.append(str(error))
    with tempfile.TemporaryDirectory(prefix="agentsgym-dry-run-") as folder:
        small, model = _in_small(config, shape, Path(folder))
        try:
            summary = train_run(small, progress=progress)
        except BaseException as error:
            _drop_advice(error, small)
            raise
    if launch.processes > 1:
        on = f" on {launch.machines} machines" if launch.machines > 1 else ""
        trained = f"here {processes_started()} trained"
        not_tried.append(f"{launch.processes} processes{on} with a GPU each: {trained}")
    try:
        train_settings(config)
    except (ConfigError, MissingExtra) as error:
        not_tried.append(f"the run as it is configured, for here it ends with: {error}")
    return [
        f"The settings are valid. {summary.steps} optimizer step ran on this CPU, on "
        f"{summary.agent_tokens} sampled tokens; nothing was kept.",
        f"{model} took the place of {config.model.path}, the embedded engine that of "
        "servers, this process that of actors on Ray. Nothing was played ahead, and settings of a "
        "GPU were left out.",
        *(f"Not tried here: {text}." for text in not_tried),
    ]


def _drop_advice(error: BaseException, small: RunConfig) -> None:
    """Drop the note that says how to resume the small run, because its directory is not kept."""
    notes = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if resume_command(small) not in note]


def _in_small(config: RunConfig, shape: Any, folder: Path) -> tuple[RunConfig, str]:
    """The run with a small model and small numbers, and this model in words."""
    env, plain = make_env(config), on_any_machine(config)
    whose, tokenizer = "a small tokenizer", build_tokenizer([], 300, tools=env.offers_tools)
    if shape is not None:  # otherwise the hub need not be asked again
        use = Use.of(config, training=False)
        with suppress(ConfigError):
            whose, tokenizer = "its own tokenizer", load_tokenizer(config.model, use)
    model = _random_model(shape, tokenizer)
    for part in (model, tokenizer):
        part.save_pretrained(folder / "model")
    # The small model does not have the layers that an adapter names.
    lora = config.model.lora and config.model.lora.model_copy(update={"layers_to_transform": None})
    section: dict[str, Any] = {"path": str(folder / "model"), "revision": None, "lora": lora}
    if whose != "its own tokenizer" and config.model.template_file is None:
        section |= {"chat_template": "own", "chat_template_kwargs": {}}
    is_warm = config.warm_starts and config.warm_start.source != CHAT
    warm = config.warm_start.model_copy(update=_WARM_START) if is_warm else WarmStartSettings()
    turns = min(3, env.config.max_steps_per_episode)
    changes = {
        "model": plain.model.model_copy(update=section),
        "env_config": {**config.env_config, "max_steps_per_episode": turns},
        "train": plain.train.changed(_TRAIN, _LEFT_OUT),
        "warm_start": warm,
        "eval": config.eval.model_copy(update={"rollouts": 2, "rollouts_per_task": 1}),
        "max_seconds": None,
        "signal_check": False,  # random weights say nothing legal
        "output_dir": folder / "run",
    }
    size = f"{_LAYERS} layers and width {_WIDTH}"
    words = f"A random {model.config.model_type} of {size}, with {whose}"
    return plain.model_copy(update=changes), words


def _random_model(shape: Any, tokenizer: Any) -> Any:
    """A small model with random weights, of the same type if the model's config.json is known."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

    shape = shape or LlamaConfig()
    small = AutoConfig.for_model(
        shape.model_type,
        vocab_size=len(tokenizer),
        hidden_size=_WIDTH,
        intermediate_size=2 * _WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=_WIDTH // 4,
        max_position_embeddings=_POSITIONS,
        tie_word_embeddings=shape.tie_word_embeddings,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(small, dtype=torch.float32)
