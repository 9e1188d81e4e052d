"""What a run needs, from its configuration alone: memory of one of its processes, tokens of a step.

With N weights of which N' are trained, all in bytes:

    weights      4 N; with LoRA b (N - N') + 4 N', b the bytes of a frozen weight
    copies       2 N' of 16 bits where the embedded engine samples under autocast, 4 N for the
                 reference of KL without an adapter
    optimizer    8 N' for Adam's two moments, 2 N' with an optimizer of 8 bits; those of a smaller
                 optimizer are counted as Adam's
    gradients    4 N'
    activations  per token of a forward chunk and layer 36 widths and 4 MLP widths of 2 or 4 bytes;
                 with gradient checkpointing one width per layer, and one layer at a time; the
                 keys and values that a row gathers from its path count as their share of a token
    cache        keys and values of the tokens that the embedded engine holds

The peak has what sampling or what the update needs besides weights, copies and optimizer. Several
processes divide among them what `distributed` names. Buffers of their traffic, layers that FSDP2
gathers, libraries, the kernels that a CPU compiles for 16 bits (about 1 GB) and an engine outside
the process are not counted.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentsgym.envs import ConfigError
from agentsgym.generation.factory import choose
from agentsgym.generation.settings import EngineSettings
from agentsgym.runs import Progress
from agentsgym.runs.auto import resolved
from agentsgym.runs.from_config import make_env, train_settings
from agentsgym.runs.models import ask_hub, device_in_use, dtype_of, model_place, source_of
from agentsgym.runs.processes import SHARING
from agentsgym.runs.settings import SMOLLM2, TINY, RunConfig
from agentsgym.runs.smollm2 import SHAPE
from agentsgym.runs.weights import new_adapter, stored_adapter
from agentsgym.training.loss.activations import Activations
from agentsgym.training.settings import RaySettings

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig

_HARDWARE = ("tf32", *SHARING)
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
    config = resolved(config, Progress())
    settings = train_settings(on_any_machine(config))
    model = model_shape(config)
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
        "train": config.train.changed({"use_cpu": True}, _HARDWARE),
        "model": config.model.model_copy(update=plain),
        "engine": EngineSettings(capacity=config.engine.capacity),
        "ray": RaySettings(),
        "distributed": "ddp",
    }
    return config.model_copy(update=changes)


def model_shape(config: RunConfig) -> Any:
    """The model of a run on torch's meta device: its modules without weights. From the hub comes at
    most its config.json. Raises ConfigError if that cannot be had."""
    import torch
    from transformers import AutoModelForCausalLM

    model_config = _config_of(config)
    layers = int(getattr(model_config, "num_hidden_layers", 0))
    if layers > _MOST_LAYERS:
        raise ConfigError(f"model {config.model.path!r}: its config.json names {layers} layers")
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(model_config, trust_remote_code=False)
    except Exception as error:  # each architecture raises its own errors for a wrong shape
        raise ConfigError(f"model {config.model.path!r} cannot be built: {error}") from None


def _config_of(config: RunConfig) -> Any:
    from transformers import AutoConfig, LlamaConfig

    path, section = config.model.path, config.model
    if path == TINY:
        tiny = config.warm_start_settings().model
        return LlamaConfig(
            vocab_size=2048,
            hidden_size=tiny.hidden_size,
            intermediate_size=tiny.intermediate_size,
            num_hidden_layers=tiny.layers,
            num_attention_heads=tiny.heads,
            head_dim=tiny.head_size,
            tie_word_embeddings=True,
        )
    if path == SMOLLM2:
        return LlamaConfig(**SHAPE)
    stored = stored_adapter(section)
    place = model_place(path if stored is None else stored.base)
    try:
        ask_hub(place, section)
        return AutoConfig.from_pretrained(place, **source_of(section))
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"the config.json of model {path!r} cannot be read: {reason}") from None


def _needs(
    config: RunConfig,
    settings: "GRPOEnvConfig",
    tokens: int,
    shape: Any,
    size: int,
    trained: int,
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
    generation = settings.per_device_train_batch_size * settings.steps_per_generation
    return {
        "weights": 4 * trained + round(frozen),
        "copies": copies,
        "optimizer": (2 if "8bit" in optimizer else 8) * trained,
        "gradients": 4 * trained,
        "activations": _activations(config, settings, tokens, shape, item),
        "cache": generation * tokens * 2 * layers * keys * item if samples else 0,
    }


def _activations(
    config: RunConfig, settings: "GRPOEnvConfig", tokens: int, shape: Any, item: int
) -> int:
    """Of a chunk of RL or of the warm start, whichever is larger."""
    used = Activations.of(shape, item, checkpointing=bool(settings.gradient_checkpointing))
    # A row's branch gathers its whole path.
    rows = [(1 + used.share) * tokens * n for n in (1, settings.per_device_train_batch_size)]
    chunk = max(min(settings.max_tokens_per_forward, rows[1]), rows[0])
    if config.warm_starts:
        chunk = max(chunk, config.warm_start_settings().max_tokens_per_forward or 0)
    return round(chunk * used.token)
