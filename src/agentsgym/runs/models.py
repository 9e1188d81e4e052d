"""The model that a section `model` names: one of the package, of a directory or of a hub, which may
be a stranger's. Only checked safetensors weights are read, and a model's own code is never run.
"""

import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import ensure, installed
from agentsgym.runs.builtin import SHAPE, builtin_models, model_place
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.files.directory import replacing
from agentsgym.runs.parts import Progress, part
from agentsgym.runs.settings import BUILTIN, SMOLLM2, TINY, ModelSettings, RunConfig
from agentsgym.runs.weights import (
    StoredAdapter,
    ask_hub,
    base_section,
    cannot_load,
    check_loaded,
    check_vocabulary,
    is_adapter,
    merged,
    model_damage,
    new_adapter,
    read_adapter,
    refuse_kernels,
    stored_adapter,
    with_stored,
)
from agentsgym.types.names import did_you_mean
from agentsgym.warm_start.tiny import llama_config

_PLAIN = ModelSettings()


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model and its tokenizer; `figures` describe its warm start."""

    model: Any
    tokenizer: Any
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a model is loaded for: `training` it or not, on a `device` ("cpu", "cuda"). With
    `trust`, the base model of an adapter may be in any directory."""

    training: bool
    device: str
    trust: bool = False

    @classmethod
    def of(cls, config: RunConfig, *, training: bool) -> "Use":
        """The use of a run's model in training, or in an evaluation."""
        device = device_in_use(use_cpu=training and bool(config.train.use_cpu))
        return cls(training=training, device=device, trust=config.train.trust is True)


def load_policy(config: RunConfig, progress: Progress) -> Policy:
    """The model that a run trains, new if it is `tiny`. Raises ConfigError if it does not exist or
    cannot be loaded here."""
    if config.model.path == TINY:
        made = part("warm_start").new_model(config, progress)
        players = {name: asdict(one) for name, one in made.players.items()}
        figures = dict(made.figures) | {"settings": config.warm_start, "players": players}
        return Policy(made.model, made.tokenizer, figures)
    return load_model(config.model, Use.of(config, training=True))


def load_model(model: ModelSettings, use: Use) -> Policy:
    """The model and its tokenizer; a model with an adapter is PEFT's. Weights that are trained are
    float32, all others have the section's dtype. Raises ConfigError for what is wrong with the
    settings, the files or the machine."""
    _refuse_tiny(model)
    check_name(model)
    check_machine(model, use.device)
    stored = stored_adapter(model)
    _check_fitting(model, stored, use)
    whole = stored is None and model.lora is None
    dtype = "float32" if use.training and whole else str(dtype_of(model, use.device))
    base = base_section(model, stored, trust=use.trust)
    policy = load_pretrained(model_place(base.path), base, dtype.removeprefix("torch."))
    adapted, tokenizer = policy.model, policy.tokenizer
    if stored is not None:
        if has_tokenizer(stored.folder):
            tokenizer = pretrained_tokenizer(stored.folder)
            check_vocabulary(stored.folder, policy.model, tokenizer)
        adapted = with_stored(policy.model, stored, trainable=use.training)
    elif model.lora is not None and use.training:
        local = Path(base.path).is_dir()
        name = str(Path(base.path).resolve()) if local else base.path  # in every working directory
        adapted = new_adapter(policy.model, model.lora, name, model.revision)
    return Policy(adapted, with_template(tokenizer, model))


def load_tokenizer(model: ModelSettings, use: Use) -> Any:
    """The same tokenizer, without the weights."""
    _refuse_tiny(model)
    stored = stored_adapter(model)
    if stored is not None and has_tokenizer(stored.folder):
        return with_template(pretrained_tokenizer(stored.folder), model)
    base = base_section(model, stored, trust=use.trust)
    return with_template(pretrained_tokenizer(model_place(base.path), base), model)


def _refuse_tiny(model: ModelSettings) -> None:
    if model.path == TINY:
        raise ConfigError("model: 'tiny' is made by a training; name the directory of a model")


def check_name(model: ModelSettings) -> None:
    """Raise ConfigError for a name like one of the package's models, without asking the hub."""
    path, known = model.path, [TINY, *(BUILTIN + name for name in builtin_models())]
    if path in known or Path(path).is_dir():
        return
    near = did_you_mean(path, known)
    if path.startswith(BUILTIN) or ("/" not in path and near.startswith("did")):
        raise ConfigError(f"model: there is no model {path!r}; {near}")


def _check_fitting(model: ModelSettings, stored: StoredAdapter | None, use: Use) -> None:
    """Raise ConfigError for settings that this kind of model does not have."""
    if model.revision is not None and (Path(model.path).is_dir() or model.path.startswith(BUILTIN)):
        raise ConfigError(
            f"model.revision={model.revision} is a branch or commit on the hub, but model.path "
            f"{model.path} is not a name there; leave it out"
        )
    if stored is not None and model.lora is not None:
        raise ConfigError(
            f"model.path {model.path} is an adapter, which has settings of its own: leave "
            "model.lora out, or first merge it (agentsgym merge)"
        )
    if use.training and model.quantization and stored is None and model.lora is None:
        raise ConfigError(
            f"model.quantization={model.quantization}: quantized weights cannot be trained; train "
            "an adapter on them (model.lora={})"
        )


def with_template(tokenizer: Any, model: ModelSettings) -> Any:
    """The tokenizer with the chat template of the file that the section names, if it names one."""
    if model.template_file is not None:
        try:
            tokenizer.chat_template = Path(model.template_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"model.chat_template: {model.template_file}: {error}") from None
    return tokenizer


# -- this machine ----------------------------------------------------------------------------------


# Without its package transformers would load a kernel from the hub instead, which is code.
_FLASH = {
    "flash_attention_2": "flash_attn",
    "flash_attention_3": "flash_attn_interface",
    "flash_attention_4": "flash_attn",
}


def check_machine(model: ModelSettings, device: str) -> None:
    """Raise ConfigError (MissingExtra without bitsandbytes) for a setting that needs another
    device than `device` ("cpu", "cuda") or a package that is not installed."""
    dtype_of(model, device)
    name = model.attn_implementation or ""
    is_flash = name.startswith("flash")
    for key, needs_gpu in (("attn_implementation", is_flash), ("quantization", True)):
        if device == "cpu" and needs_gpu and (value := getattr(model, key)):
            raise ConfigError(
                f"model.{key}={value} needs a GPU, and there is none in use here; leave it out"
            )
    if is_flash and not installed(_FLASH[name]):
        raise ConfigError(
            f"model.attn_implementation={name} needs the package {_FLASH[name]}, which is not "
            "installed here; leave it out, or name sdpa"
        )
    if model.quantization is not None:
        ensure("bitsandbytes", "quantized")


def dtype_of(model: ModelSettings, device: str) -> Any:
    """The torch dtype that the model computes with. Raises ConfigError if `device` cannot."""
    from agentsgym.generation.embedded.precision import resolve_dtype

    try:
        return resolve_dtype(model.precision, device)
    except ValueError as error:
        raise ConfigError(f"model.{error}") from None


def config_of(config: RunConfig) -> Any:
    """The config.json of a run's model, which alone comes from the hub. Raises ConfigError if it
    cannot be read."""
    from transformers import AutoConfig, LlamaConfig

    path, section = config.model.path, config.model
    if path == TINY:
        shape = config.warm_start_settings()
        return llama_config(shape.model, shape.vocab_size)
    if path == SMOLLM2:
        return LlamaConfig(**SHAPE)
    stored = stored_adapter(section)
    place = model_place(path if stored is None else stored.base)
    try:
        ask_hub(place, section)
        return AutoConfig.from_pretrained(place, **source_of(section))
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        problem = f"the config.json of model {path!r} cannot be read: {_reason(error)}"
        raise ConfigError(problem) from None


def device_in_use(*, use_cpu: bool = False) -> str:
    """The kind of device on which models run here."""
    import torch

    return "cuda" if torch.cuda.is_available() and not use_cpu else "cpu"


# -- from a directory or a hub ---------------------------------------------------------------------


def load_pretrained(
    path: str | Path, section: ModelSettings = _PLAIN, dtype: str = "float32"
) -> Policy:
    """A model directory or hub name; of the section count its revision, attention and
    quantization. Only safetensors files are read, and a model's own code is never run. Raises
    ConfigError if it cannot be loaded completely, or if it is an adapter."""
    from transformers import AutoConfig, AutoModelForCausalLM

    source, folder = source_of(section), Path(path)
    if folder.is_dir():
        problem = model_damage(folder)
        if problem is None and not has_tokenizer(folder):
            problem = "it has no tokenizer (tokenizer_config.json)"
        if problem is not None:
            raise cannot_load(path, problem)
    try:
        ask_hub(path, section)
        _refuse_adapter(path, section)
        refuse_kernels(AutoConfig.from_pretrained(path, **source), section.attn_implementation)
        tokenizer = _tokenizer(path, section)
        model, report = AutoModelForCausalLM.from_pretrained(
            path,
            **source,
            **_weights(section, dtype),
            ignore_mismatched_sizes=True,  # mismatches are refused below, by name
            output_loading_info=True,
        )
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        raise cannot_load(path, _reason(error)) from error
    check_loaded(path, model, tokenizer, report)
    return Policy(model, tokenizer)


def reloaded(folder: Path, model: Any, tokenizer: Any) -> Any:
    """A model like `model` with the weights in a directory, whose other files are not read. Raises
    ConfigError for those of another model."""
    problem = model_damage(folder) if folder.is_dir() else "there is no such directory"
    if problem is not None:
        raise cannot_load(folder, problem)
    try:
        new, report = type(model).from_pretrained(
            folder,
            config=copy.deepcopy(model.config),
            dtype=model.dtype,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        raise cannot_load(folder, _reason(error)) from error
    check_loaded(folder, new, tokenizer, report)
    return new.to(model.device)


def pretrained_tokenizer(path: str | Path, section: ModelSettings = _PLAIN) -> Any:
    """The tokenizer of a model directory or hub name, without its weights. Raises ConfigError if
    it does not exist."""
    try:
        ask_hub(path, section)
        return _tokenizer(path, section)
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        raise cannot_load(path, _reason(error)) from error


def _tokenizer(path: str | Path, section: ModelSettings) -> Any:
    """Raises ValueError for one without tokens, which transformers makes where there is none."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path, **source_of(section))
    if not tokenizer.encode("text", add_special_tokens=False):
        raise ValueError("it has no tokenizer, or one that has no token for a text")
    return tokenizer


def has_tokenizer(folder: Path) -> bool:
    """Whether a directory contains a tokenizer."""
    return (folder / "tokenizer_config.json").is_file()


def source_of(section: ModelSettings) -> dict[str, Any]:
    """The arguments of every loader of transformers."""
    return {"revision": section.revision or "main", "trust_remote_code": False}


def _weights(section: ModelSettings, dtype: str) -> dict[str, Any]:
    """The arguments of the loader of weights."""
    import torch
    from transformers import BitsAndBytesConfig

    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "use_safetensors": True}
    if section.attn_implementation is not None:
        options["attn_implementation"] = section.attn_implementation
    if section.quantization is not None:
        four = {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": options["dtype"],
        }
        bits = four if section.quantization == "4bit" else {"load_in_8bit": True}
        options["quantization_config"] = BitsAndBytesConfig(**bits)
        options["device_map"] = {"": torch.cuda.current_device()}
    return options


def _refuse_adapter(path: str | Path, section: ModelSettings) -> None:
    """Raise ValueError for an adapter on the hub, whose base transformers would download."""
    from transformers.utils.peft_utils import find_adapter_config_file

    if find_adapter_config_file(str(path), revision=section.revision):
        raise ValueError(
            "it is an adapter; download it into a directory (hf download NAME --local-dir DIR) and "
            "name that"
        )


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {text}"


# -- merging an adapter ----------------------------------------------------------------------------


def merge_adapter(source: Path, output: Path | None = None, *, trust: bool = False) -> Path:
    """Write the base model with the adapter in `source`, a run or an adapter directory, as a plain
    model directory (default: `merged` in `source`), and return its path. The sum is computed in
    float32 and stored in the base model's own dtype. Raises ConfigError if there is no adapter, its
    base model cannot be loaded, or `output` exists."""
    import torch
    from transformers import AutoConfig

    folder = _adapter_in(source)
    target = output or source / "merged"
    if target.exists():
        raise ConfigError(f"{target} already exists; name another directory with --output")
    section = ModelSettings(path=str(folder), dtype="float32")
    use = Use(training=False, device="cpu", trust=trust)
    policy = load_model(section, use)
    base = base_section(section, read_adapter(folder), trust=trust)
    config = AutoConfig.from_pretrained(model_place(base.path), **source_of(base))
    dtype = config.dtype or torch.float32
    model = merged(policy.model).to(dtype)
    with replacing(target) as part:
        model.save_pretrained(part)
        policy.tokenizer.save_pretrained(part)
    return target


def _adapter_in(source: Path) -> Path:
    """The adapter directory of a run, or `source` itself."""
    if is_adapter(source):
        return source
    run = RunDirectory(source)
    if is_adapter(run.model):
        return run.model
    if run.model.is_dir():
        raise ConfigError(f"{run.model} has whole weights, so it is a plain model already")
    raise ConfigError(f"{source} is neither a run that has trained an adapter nor an adapter")
