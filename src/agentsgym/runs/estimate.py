"""What a run needs, from its configuration alone: memory of a process, tokens of a step."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from agentsgym.envs import MultistepEnv
from agentsgym.runs.architecture import Architecture, architecture_of
from agentsgym.runs.config import RunConfig
from agentsgym.runs.engine_config import EngineConfig, engine_of
from agentsgym.runs.from_config import make_env, train_settings
from agentsgym.runs.memory import Layout, Memory, Workload, memory_of

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig

FIRST_PROMPT, OBSERVED = 256, 32
"""Tokens of a first prompt and of an observation, guessed where `max_rollout_tokens` is not set."""

_HARDWARE = ("bf16", "fp16", "tf32", "use_vllm", "deepspeed", "fsdp", "fsdp_config")
_ROUND_ROWS = 32  # generation/embedded/cache_manager.py
# oneDNN keeps 1,024 products, and the memory of others returns in part: 4,500 shapes held 1.2 GB.
_PRODUCTS = 1700
_QUANTIZED = {"4bit": 0.56, "8bit": 1.03}  # bytes per weight, with the scales of its block
# Float32 values per trained weight; the first name that an optimizer's contains.
_MOMENTS = {"8bit": 0.5, "lion": 1.0, "sgd": 0.0, "adafactor": 0.0, "adagrad": 1.0, "adam": 2.0}


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
    """The memory of one process in each layout of the processes, and the tokens of a step."""

    model: Architecture
    workload: Workload
    memory: dict[Layout, Memory]
    tokens: Tokens
    notes: list[str]


def estimate(config: RunConfig, processes: int = 1) -> Estimate:
    """Estimate a run; nothing is loaded, downloaded or started.

    Raises ConfigError if the settings are wrong or the model's architecture is not known.
    """
    model = architecture_of(config)
    settings = train_settings(on_any_machine(config))
    tokens = tokens_of(make_env(config), settings)
    load = workload(config, settings, model, tokens)
    layouts: list[Layout] = ["one process"] if processes == 1 else ["DDP", "ZeRO-2"]
    memory = {layout: memory_of(load, layout, processes) for layout in layouts}
    return Estimate(model, load, memory, tokens, _notes(config, settings, tokens, processes))


def on_any_machine(config: RunConfig) -> RunConfig:
    """The configuration without what needs a GPU or a server, to fill in all other settings."""
    train = {
        key: value
        for key, value in config.train.items()
        if key not in _HARDWARE and not key.startswith(("vllm_", "engine", "rollout_worker"))
    }
    plain = {"dtype": "float32", "quantization": None, "attn_implementation": None}
    changes: dict[str, Any] = {
        "train": {**train, "use_cpu": True},
        "model": config.model.model_copy(update=plain),
        "engine": EngineConfig(),
        "answerer": {},
    }
    return config.model_copy(update=changes)


def tokens_of(env: MultistepEnv, settings: "GRPOEnvConfig") -> Tokens:
    """The size of a step in an environment."""
    turns = env.config["max_steps_per_episode"] * env.config["episodes_per_trial"]
    action = settings.max_action_tokens or 0
    bound = settings.max_rollout_tokens
    guess = FIRST_PROMPT * env.config["episodes_per_trial"] + turns * (action + OBSERVED)
    micro = settings.per_device_train_batch_size
    return Tokens(
        generation=micro * settings.steps_per_generation,
        rollouts=micro * settings.gradient_accumulation_steps,
        turns=turns,
        action=action,
        rollout=bound or guess,
        known=bound is not None,
    )


def workload(
    config: RunConfig, settings: "GRPOEnvConfig", model: Architecture, tokens: Tokens
) -> Workload:
    """What one process holds and computes."""
    lora, half = config.model.lora, precision_of(config) != "float32"
    layers = None if lora is None else getattr(lora, "layers_to_transform", None)
    adapter = 0 if lora is None else model.lora_weights(lora.r, lora.target_modules, layers)
    micro = settings.per_device_train_batch_size * tokens.rollout
    forward = max(min(settings.max_tokens_per_forward, micro), tokens.rollout)
    capacity = engine_of(config.engine, config.train).capacity or settings.engine_capacity
    place = sampling_place(config)
    rows = 0 if place == "servers" else min(capacity, tokens.generation)
    return Workload(
        model=model,
        trained=adapter or model.parameters,
        adapter=adapter,
        base_bytes=_base_bytes(config, half=half),
        half=half,
        moments=_moments(settings),
        differentiated=model.layers - min(layers) if layers else model.layers,
        reference=bool(settings.beta) and lora is None,
        checkpointing=bool(settings.gradient_checkpointing),
        forward_tokens=forward,
        row_tokens=tokens.rollout,
        agent_tokens=round(forward * tokens.agent / tokens.read),
        several=tokens.read > forward,
        rows=rows,
        cache_tokens=_cache_tokens(rows, tokens) if rows else 0,
        products=_PRODUCTS if half and _is_on_cpu(config) else 0,
        sent=_sent(config) if place == "process" else 0,
    )


def precision_of(config: RunConfig) -> str:
    """The dtype in which passes compute: the section's, or for `auto` this machine's."""
    from agentsgym.generation.embedded.precision import resolve_dtype

    if config.model.precision != "auto":
        return config.model.precision
    device = "cpu" if config.train.get("use_cpu") else None
    return str(resolve_dtype("auto", device)).removeprefix("torch.")


def sampling_place(config: RunConfig) -> Literal["here", "process", "servers"]:
    """What samples: the process that trains, a process of its own beside it, or servers."""
    engine = engine_of(config.engine, config.train)
    if engine.urls or engine.is_trl or engine.launch:
        return "servers"
    if engine.name in (None, "embedded", "plain"):
        return "here"
    return "process" if engine.name == "process" else "servers"


def _sent(config: RunConfig) -> int:
    """How many copies of the weights a process of its own adds: one in memory that both processes
    share, and its own. On a GPU only its own is there."""
    return 2 if _is_on_cpu(config) else 1


def _is_on_cpu(config: RunConfig) -> bool:
    """Whether the run computes on a CPU; with servers or quantized weights it is meant for GPUs."""
    from agentsgym.runs.machine import device_in_use

    for_gpu = config.model.quantization or sampling_place(config) == "servers"
    return not for_gpu and device_in_use(use_cpu=bool(config.train.get("use_cpu"))) == "cpu"


def _base_bytes(config: RunConfig, *, half: bool) -> float:
    if config.model.lora is None:
        return 4.0
    return _QUANTIZED.get(config.model.quantization or "", 2.0 if half else 4.0)


def _moments(settings: "GRPOEnvConfig") -> float:
    name = str(getattr(settings.optim, "value", settings.optim))
    return next((value for part, value in _MOMENTS.items() if part in name), 2.0)


def _cache_tokens(rows: int, tokens: Tokens) -> int:
    """Tokens that memory is held for at the end: rows, which grow by doubling, and the caches of
    waiting sessions."""
    length, turn = 0, tokens.rollout / max(tokens.turns, 1)
    for number in range(1, tokens.turns + 1):
        limit = round(number * turn)
        if limit > length:
            length = -(-max(limit, 2 * length) // _ROUND_ROWS) * _ROUND_ROWS
    return rows * length + (tokens.generation - rows) * tokens.rollout


def _notes(
    config: RunConfig, settings: "GRPOEnvConfig", tokens: Tokens, processes: int
) -> list[str]:
    notes = []
    if not tokens.known:
        notes.append(
            f"Tokens of a rollout are guessed: a first prompt of {FIRST_PROMPT}, observations of "
            f"{OBSERVED}, every action of {tokens.action}; train.max_rollout_tokens bounds them."
        )
    place = sampling_place(config)
    if place == "process":
        notes.append("The engine's own process, which works beside the optimizer, is counted.")
    if place == "servers":
        notes.append(
            "The engine's own memory is not counted: a vLLM server holds 2 bytes per "
            "weight and a cache of the size that it is given."
        )
    if config.model.quantization:
        notes.append("Quantized layers are unpacked one by one, which is not counted.")
    if processes > 1:
        notes.append("Buffers of the communication between processes are not counted.")
    return notes
