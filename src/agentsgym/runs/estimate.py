"""What a run needs, from its configuration alone: memory of a process, tokens of a step.

With N weights of which N' are trained, all in bytes:

    weights      4 N; with LoRA b (N - N') + 4 N', b the bytes of a frozen weight
    copies       2 N' of 16 bits where the embedded engine samples under autocast, 4 N for the
                 reference of KL without an adapter
    optimizer    8 N' for Adam's two moments, 2 N' with an optimizer of 8 bits; those of a smaller
                 optimizer are counted as Adam's
    gradients    4 N', twice under DDP
    activations  per token of a forward chunk and layer 36 widths and 4 MLP widths of 2 or 4 bytes;
                 with gradient checkpointing one width per layer, and one layer at a time
    cache        keys and values of the tokens that the embedded engine holds

The peak has what sampling or what the update needs besides weights, copies and optimizer. ZeRO-2
divides optimizer and gradients over the processes, and FSDP2 weights and optimizer (gradients are
whole until the last chunk). Libraries, communication, the kernels that a
CPU compiles for 16 bits (about 1 GB) and an engine outside the process are not counted.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.generation.factory import choose
from agentsgym.runs.from_config import make_env, train_settings
from agentsgym.runs.launch import on_any_machine
from agentsgym.runs.models.adapters import new_adapter
from agentsgym.runs.models.builtin import SHAPE, model_place
from agentsgym.runs.models.load import stored_adapter
from agentsgym.runs.models.pretrained import device_in_use, dtype_of, source_of
from agentsgym.runs.settings import SMOLLM2, TINY, RunConfig
from agentsgym.runs.warm_start import settings_of, warm_starts

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig

Layout = Literal["one process", "DDP", "ZeRO-2", "FSDP2"]
Needs = dict[str, int]

# Tokens of a first prompt and of an observation, guessed where `max_rollout_tokens` is not set.
_FIRST_PROMPT, _OBSERVED = 256, 32
_MOST_LAYERS = 1000
_QUANTIZED = {"4bit": 0.5, "8bit": 1.0}  # bytes per weight


@dataclass(frozen=True, slots=True)
class Tokens:
    """The size of a step in one process: rollouts of a generation and of an optimizer step, turns
    and tokens of a rollout, at most; `known` says that the settings bound the tokens."""

    generation: int
    rollouts: int
    turns: int
    action: int
    rollout: int
    known: bool

    @property
    def agent(self) -> int:
        """Tokens that are sampled for an optimizer step."""
        return self.rollouts * min(self.turns * self.action, self.rollout)

    @property
    def read(self) -> int:
        """Tokens that the loss of an optimizer step reads."""
        return self.rollouts * self.rollout


@dataclass(frozen=True, slots=True)
class Estimate:
    """Weights of the model and of its adapter, the memory of one process by what needs it in each
    layout of the processes (with `peak`, the most that is needed at once), in bytes, and the tokens
    of a step."""

    parameters: int
    adapter: int
    memory: dict[Layout, Needs]
    tokens: Tokens
    notes: list[str]


def estimate_run(config: RunConfig, processes: int = 1) -> Estimate:
    """Estimate a run; no weights are loaded. Raises ConfigError if the settings are wrong or the
    model's config.json cannot be read."""
    settings = train_settings(on_any_machine(config))
    tokens = _tokens(make_env(config), settings)
    model = model_shape(config)
    size, shape, adapter = model.num_parameters(), model.config, 0
    if config.model.lora is not None:
        adapted = new_adapter(model, config.model.lora, config.model.path, None)
        adapter = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    memory = _layouts(_needs(config, settings, tokens, shape, size, adapter), processes)
    for needs in memory.values():
        always = needs["weights"] + needs["copies"] + needs["optimizer"]
        needs["peak"] = always + max(needs["gradients"] + needs["activations"], needs["cache"])
    return Estimate(size, adapter, memory, tokens, _notes(config, tokens, processes))


def _tokens(env: MultistepEnv, settings: "GRPOEnvConfig") -> Tokens:
    turns = env.config.max_steps_per_episode * env.config.episodes_per_trial
    action = settings.max_action_tokens or 0
    bound = settings.max_rollout_tokens
    guess = _FIRST_PROMPT * env.config.episodes_per_trial + turns * (action + _OBSERVED)
    micro = settings.per_device_train_batch_size
    return Tokens(
        generation=micro * settings.steps_per_generation,
        rollouts=micro * settings.gradient_accumulation_steps,
        turns=turns,
        action=action,
        rollout=bound or guess,
        known=bound is not None,
    )


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
        tiny = settings_of(config).model
        return LlamaConfig(
            vocab_size=2048,
            hidden_size=tiny.hidden_size,
            intermediate_size=tiny.intermediate_size,
            num_hidden_layers=tiny.layers,
            num_attention_heads=tiny.heads,
            tie_word_embeddings=True,
        )
    if path == SMOLLM2:
        return LlamaConfig(**SHAPE)
    stored = stored_adapter(section)
    place = model_place(path if stored is None else stored.base)
    try:
        return AutoConfig.from_pretrained(place, **source_of(section))
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"the config.json of model {path!r} cannot be read: {reason}") from None


def _needs(
    config: RunConfig,
    settings: "GRPOEnvConfig",
    tokens: Tokens,
    shape: Any,
    size: int,
    adapter: int,
) -> Needs:
    """Bytes of one process by what needs them, without its peak."""
    device = device_in_use(use_cpu=bool(config.train.get("use_cpu")))
    item = 4 if str(dtype_of(config.model, device)) == "torch.float32" else 2
    trained = adapter or size
    frozen = _QUANTIZED.get(config.model.quantization or "", item) * size if adapter else 0
    samples = _samples_itself(config)
    copies = 2 * trained if item == 2 and samples else 0
    if settings.beta and not adapter:
        copies += 4 * size
    optimizer = str(getattr(settings.optim, "value", settings.optim))
    heads, layers = shape.num_attention_heads, int(shape.num_hidden_layers)
    width = getattr(shape, "head_dim", None) or shape.hidden_size // heads
    keys = int((getattr(shape, "num_key_value_heads", None) or heads) * width)
    cache = tokens.generation * tokens.rollout * 2 * layers * keys * item
    return {
        "weights": 4 * trained + round(frozen),
        "copies": copies,
        "optimizer": (2 if "8bit" in optimizer else 8) * trained,
        "gradients": 4 * trained,
        "activations": _activations(config, settings, tokens, shape, item),
        "cache": cache if samples else 0,
    }


def _samples_itself(config: RunConfig) -> bool:
    """Whether the process that trains also samples."""
    return choose(config.engine, training=True).name in ("embedded", "plain")


def _activations(
    config: RunConfig, settings: "GRPOEnvConfig", tokens: Tokens, shape: Any, item: int
) -> int:
    """Of a chunk of RL or of the warm start, whichever is larger."""
    micro = settings.per_device_train_batch_size * tokens.rollout
    chunk: int = max(min(settings.max_tokens_per_forward, micro), tokens.rollout)
    if warm_starts(config):
        chunk = max(chunk, settings_of(config).max_tokens_per_forward or 0)
    layers, width = int(shape.num_hidden_layers), int(shape.hidden_size)
    layer = 36 * width + 4 * item * int(getattr(shape, "intermediate_size", 4 * width))
    if settings.gradient_checkpointing:
        return chunk * (4 * width * layers + layer)
    return chunk * layer * layers


def _layouts(needs: Needs, processes: int) -> dict[Layout, Needs]:
    if processes == 1:
        return {"one process": needs}
    trained = needs["gradients"] // 4
    zero = {  # the weights themselves are in 16 bits, with a divided master copy
        "weights": needs["weights"] - 2 * trained,
        "optimizer": (needs["optimizer"] + 4 * trained) // processes,
        "gradients": 2 * trained // processes,
    }
    divided = {key: needs[key] // processes for key in ("weights", "optimizer")}
    return {
        "DDP": needs | {"gradients": 8 * trained},
        "ZeRO-2": needs | zero,
        "FSDP2": needs | divided,
    }


def _notes(config: RunConfig, tokens: Tokens, processes: int) -> list[str]:
    notes = []
    if not tokens.known:
        notes.append(
            f"Tokens of a rollout are guessed: a first prompt of {_FIRST_PROMPT}, observations of "
            f"{_OBSERVED}, every action of {tokens.action}; train.max_rollout_tokens bounds them."
        )
    if not _samples_itself(config):
        notes.append(
            "The engine's own memory is not counted: it holds all weights again (a vLLM server 2 "
            "bytes of each) and a cache of the size that it is given."
        )
    if processes > 1:
        notes.append(
            "distributed: ddp keeps everything in each process, zero2 needs DeepSpeed, and fsdp2 "
            "vLLM servers."
        )
    return notes
