"""A run before it starts: the memory and the tokens that it needs, by its configuration alone, and
the run itself in small, with one step and random weights, on any CPU.

With N weights of which N' are trained, the memory of one process in bytes:

    weights      4 N; with LoRA b (N - N') + 4 N', b the bytes of a frozen weight
    copies       2 N' of 16 bits where the embedded engine samples under autocast, 4 N for the
                 reference of KL without an adapter
    optimizer    8 N' for Adam's two moments, 2 N' with an optimizer of 8 bits
    gradients    4 N'
    activations  per token of a forward chunk and layer 36 widths and 4 MLP widths of 2 or 4 bytes;
                 with gradient checkpointing one width per layer, and one layer at a time; the
                 keys and values that a row gathers from its path count as their share of a token
    cache        keys and values of the tokens that the embedded engine holds

The peak has what sampling or what the update needs besides weights, copies and optimizer. Several
processes divide among them what `distributed` names. Buffers of their traffic, layers that FSDP2
gathers, libraries and an engine outside the process are not counted.
"""

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import MissingExtra
from agentsgym.generation.factory import choose
from agentsgym.generation.settings import EngineSettings
from agentsgym.runs.auto import resolved
from agentsgym.runs.from_config import make_env, run_tasks, train_settings
from agentsgym.runs.models import Use, config_of, device_in_use, dtype_of, load_tokenizer
from agentsgym.runs.parts import Progress
from agentsgym.runs.processes import SHARING, Launch, check_processes, processes_started
from agentsgym.runs.settings import TINY, RunConfig
from agentsgym.runs.train import train_run
from agentsgym.runs.trust import resume_command
from agentsgym.runs.weights import new_adapter
from agentsgym.training.loss.activations import Activations
from agentsgym.training.settings import RaySettings
from agentsgym.warm_start.settings import CHAT, WarmStartSettings
from agentsgym.warm_start.tiny import build_tokenizer

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig

# Tokens of a first prompt and of an observation, guessed where `max_rollout_tokens` is not set.
_FIRST_PROMPT, _OBSERVED = 256, 32
_MOST_LAYERS = 1000
_QUANTIZED = {"4bit": 0.5, "8bit": 1.0}  # bytes per weight
_DIVIDED = {"ddp": (), "zero2": ("optimizer", "gradients")}
_DIVIDED["fsdp2"] = ("weights", *_DIVIDED["zero2"])


@dataclass(frozen=True, slots=True)
class Estimate:
    """Weights of the model and those that are trained, the memory of one process in bytes by what
    needs it (`peak`: the most that is needed at once), and the rollouts of an optimizer step of all
    processes with the most tokens of one; `guessed` says that no setting bounds these."""

    parameters: int
    trained: int
    memory: dict[str, int]
    rollouts: int
    tokens: int
    guessed: bool


def estimate_run(config: RunConfig, processes: int = 1) -> Estimate:
    """Estimate a run in that many processes; no weights are loaded. Raises ConfigError if the
    settings are wrong or the model's config.json cannot be read."""
    config = resolved(config, Progress(), processes)
    settings = train_settings(on_any_machine(config))
    model = _model_shape(config)
    size = trained = model.num_parameters()
    if config.model.lora is not None:
        adapted = new_adapter(model, config.model.lora, config.model.path, None)
        trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    tokens = settings.max_rollout_tokens or _guess(config, settings)
    needs = _needs(config, settings, tokens, model.config, size, trained)
    needs |= {what: needs[what] // processes for what in _DIVIDED[config.distributed]}
    always = needs["weights"] + needs["copies"] + needs["optimizer"]
    needs["peak"] = always + max(needs["gradients"] + needs["activations"], needs["cache"])
    micro = settings.per_device_train_batch_size
    return Estimate(
        parameters=size,
        trained=trained,
        memory=needs,
        rollouts=micro * settings.gradient_accumulation_steps * processes,
        tokens=tokens,
        guessed=settings.max_rollout_tokens is None,
    )


def _guess(config: RunConfig, settings: "GRPOEnvConfig") -> int:
    """The tokens of a rollout in which every action is as long as it may be."""
    env = make_env(config).config
    turns = env.max_steps_per_episode * env.episodes_per_trial
    action = settings.max_action_tokens or 0
    return int(_FIRST_PROMPT * env.episodes_per_trial + turns * (action + _OBSERVED))


def on_any_machine(config: RunConfig) -> RunConfig:
    """The configuration without what needs a GPU or a server, to fill in all other settings."""
    plain = {"dtype": "float32", "quantization": None, "attn_implementation": None}
    changes: dict[str, Any] = {
        "train": config.train.changed({"use_cpu": True}, ("tf32", *SHARING)),
        "model": config.model.model_copy(update=plain),
        "engine": EngineSettings(capacity=config.engine.capacity),
        "ray": RaySettings(),
        "distributed": "ddp",
    }
    return config.model_copy(update=changes)


def _model_shape(config: RunConfig) -> Any:
    """The model of a run on torch's meta device: its modules without weights. From the hub comes at
    most its config.json. Raises ConfigError if that cannot be had."""
    import torch
    from transformers import AutoModelForCausalLM

    model_config = config_of(config)
    layers = int(getattr(model_config, "num_hidden_layers", 0))
    if layers > _MOST_LAYERS:
        raise ConfigError(f"model {config.model.path!r}: its config.json names {layers} layers")
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(model_config, trust_remote_code=False)
    except Exception as error:  # each architecture raises its own errors for a wrong shape
        raise ConfigError(f"model {config.model.path!r} cannot be built: {error}") from None


def _needs(
    config: RunConfig, settings: "GRPOEnvConfig", tokens: int, shape: Any, size: int, trained: int
) -> dict[str, int]:
    """Bytes of one process alone by what needs them, without its peak."""
    device = device_in_use(use_cpu=bool(config.train.use_cpu))
    item = 4 if str(dtype_of(config.model, device)) == "torch.float32" else 2
    adapted = config.model.lora is not None
    frozen = _QUANTIZED.get(config.model.quantization or "", item) * size if adapted else 0
    samples = choose(config.engine, training=True).name in ("embedded", "plain")
    copies = 2 * trained if item == 2 and samples else 0
    if settings.beta and not adapted:
        copies += 4 * size
    optimizer = str(getattr(settings.optim, "value", settings.optim))
    heads, layers = shape.num_attention_heads, int(shape.num_hidden_layers)
    width = getattr(shape, "head_dim", None) or shape.hidden_size // heads
    keys = int((getattr(shape, "num_key_value_heads", None) or heads) * width)
    micro = settings.per_device_train_batch_size
    used = Activations.of(shape, item, checkpointing=bool(settings.gradient_checkpointing))
    # A row's branch gathers its whole path.
    rows = [(1 + used.share) * tokens * number for number in (1, micro)]
    chunk = max(min(settings.max_tokens_per_forward, rows[1]), rows[0])
    if config.warm_starts:
        chunk = max(chunk, config.warm_start_settings().max_tokens_per_forward or 0)
    cached = micro * settings.steps_per_generation * tokens if samples else 0
    return {
        "weights": 4 * trained + round(frozen),
        "copies": copies,
        "optimizer": (2 if "8bit" in optimizer else 8) * trained,
        "gradients": 4 * trained,
        "activations": round(chunk * used.token),
        "cache": cached * 2 * layers * keys * item,
    }


# -- in small --------------------------------------------------------------------------------------


# Everything that needs no GPU and no server is run, in a temporary directory: a warm start, an
# update, both evaluations. The environment is played as it is: one that asks a server asks it.
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
    from agentsgym.training.tasks import check_number

    config = resolved(config, Progress(), launch.processes)
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
    check_number(len(run_tasks(make_env(config), config.data, "train")), settings)
    return int(settings.generation_batch_size)


def dry_run(config: RunConfig, progress: Progress, launch: Launch) -> list[str]:
    """Check all settings of a run, and play and train one step of it in small, on the CPU. Nothing
    is kept. Returns what was run, and what was not tried, with the reason.

    Raises ConfigError for a wrong setting, and for what cannot work with this launch.
    """
    config = resolved(config, progress, launch.processes)
    if processes_started() == 1:  # otherwise who started them has checked it
        check_launch(config, launch)
    shape, not_tried = None, []
    try:
        shape = _model_shape(config).config
    except ConfigError as error:
        not_tried.append(str(error))
    with tempfile.TemporaryDirectory(prefix="agentsgym-dry-run-") as folder:
        small, model = _in_small(config, shape, Path(folder))
        try:
            summary = train_run(small, progress=progress)
        except BaseException as error:  # its directory, which its note would resume, is not kept
            notes = getattr(error, "__notes__", [])
            notes[:] = [note for note in notes if resume_command(small) not in note]
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
