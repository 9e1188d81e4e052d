"""The model that a section `model` names: with a new or a stored adapter, in its dtype."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.files.atomic import replacing
from agentsgym.runs.machine import check_machine, dtype_of
from agentsgym.runs.models.adapters import (
    StoredAdapter,
    is_adapter,
    new_adapter,
    read_adapter,
    with_stored,
)
from agentsgym.runs.models.builtin import builtin_folder, builtin_models
from agentsgym.runs.models.pretrained import (
    Loading,
    Policy,
    check_vocabulary,
    has_tokenizer,
    load_pretrained,
    pretrained_tokenizer,
)
from agentsgym.runs.settings import BUILTIN, TINY, ModelSettings
from agentsgym.runs.trust import is_own
from agentsgym.types import is_under, real_path
from agentsgym.types.errors import did_you_mean


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
    base, loading = _base(model, stored, use)
    with base_folder(base) as place:
        policy = load_pretrained(place, loading)
    tokenizer = _own_tokenizer(stored, policy)
    if stored is not None:
        adapted = with_stored(policy.model, stored, trainable=use.training)
    elif model.lora is not None and use.training:
        adapted = new_adapter(policy.model, model.lora, _lasting(base), model.revision)
    else:
        adapted = policy.model
    return Policy(adapted, with_template(tokenizer, model))


def check_name(model: ModelSettings) -> None:
    """Raise ConfigError for a name like one of the package's models, without asking the hub."""
    path, known = model.path, [TINY, *(BUILTIN + name for name in builtin_models())]
    if path in known or Path(path).is_dir():
        return
    near = did_you_mean(path, known)
    if path.startswith(BUILTIN) or ("/" not in path and near.startswith("did")):
        raise ConfigError(f"model: there is no model {path!r}; {near}")


def in_hub_cache(name: str, revision: str | None) -> Path | None:
    """The config.json of a hub model that was downloaded before, or None."""
    from transformers.utils import cached_file

    try:
        found = cached_file(name, "config.json", revision=revision, local_files_only=True)
    except (OSError, ValueError):  # a name that no hub has is a ValueError
        return None
    return None if found is None else Path(found)


def base_dtype(model: ModelSettings, use: Use) -> Any:
    """The torch dtype in which the files of the base model are stored."""
    import torch
    from transformers import AutoConfig

    base, loading = _base(model, stored_adapter(model), use)
    with base_folder(base) as place:
        stored = AutoConfig.from_pretrained(place, **loading.source).dtype
    return torch.float32 if stored is None else stored


def load_tokenizer_of(model: ModelSettings, use: Use) -> Any:
    """The same tokenizer, without the weights."""
    stored = stored_adapter(model)
    if stored is not None and has_tokenizer(stored.folder):
        return with_template(pretrained_tokenizer(stored.folder), model)
    base, loading = _base(model, stored, use)
    with base_folder(base) as place:
        return with_template(pretrained_tokenizer(place, loading), model)


def stored_adapter(model: ModelSettings) -> StoredAdapter | None:
    """The adapter, if the section names the directory of one. Raises ConfigError if it is
    damaged."""
    folder = Path(model.path)
    return read_adapter(folder) if is_adapter(folder) else None


def with_template(tokenizer: Any, model: ModelSettings) -> Any:
    """The tokenizer with the chat template of the file that the section names, if it names one."""
    if model.template_file is not None:
        try:
            tokenizer.chat_template = Path(model.template_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"model.chat_template: {model.template_file}: {error}") from None
    return tokenizer


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


def _base(model: ModelSettings, stored: StoredAdapter | None, use: Use) -> tuple[str, Loading]:
    """The name of the plain model to load, and how."""
    whole = stored is None and model.lora is None
    dtype = "float32" if use.training and whole else str(dtype_of(model, use.device))
    loading = Loading(
        dtype=dtype.removeprefix("torch."),
        revision=model.revision,
        attn_implementation=model.attn_implementation,
        quantization=model.quantization,
        download=model.may_download,
    )
    if stored is None:
        return model.path, loading
    return base_of(stored, use), replace(loading, revision=stored.revision, download=False)


def base_of(stored: StoredAdapter, use: Use) -> str:
    """The base model that an adapter directory names, if it may: a model of the package, one that
    was downloaded before, or a directory in it or of a trusted or own adapter.

    Raises ConfigError otherwise, and if the directory does not exist.
    """
    base = stored.base
    if base.startswith(BUILTIN):
        return base
    if Path(base).is_absolute() or Path(base).is_dir():
        _check_directory(stored, use)
    elif in_hub_cache(base, stored.revision) is None:
        raise ConfigError(
            f"{_belongs_to(stored)} of the hub, which was not downloaded here; if you trust it: "
            f"hf download {base}"
        )
    return base


def _check_directory(stored: StoredAdapter, use: Use) -> None:
    inside = is_under(real_path(stored.base), [real_path(stored.folder)])
    if not (use.trust or inside or is_own(stored.folder)):
        raise ConfigError(f"{_belongs_to(stored)}; if you trust what is there, add --trust")
    if not Path(stored.base).is_dir():
        raise ConfigError(
            f"{_belongs_to(stored)}, which does not exist; if it has moved, correct "
            "base_model_name_or_path in adapter_config.json"
        )
    if is_adapter(Path(stored.base)):
        raise ConfigError(
            f"{_belongs_to(stored)}, which is an adapter itself: first merge that one (agentsgym "
            "merge)"
        )


def _belongs_to(stored: StoredAdapter) -> str:
    return f"the adapter in {stored.folder} belongs to the model {stored.base}"


def _lasting(base: str) -> str:
    """The name of a base model that holds in every working directory."""
    return str(Path(base).resolve()) if Path(base).is_dir() else base


def _own_tokenizer(stored: StoredAdapter | None, base: Policy) -> Any:
    if stored is None or not has_tokenizer(stored.folder):
        return base.tokenizer
    tokenizer = pretrained_tokenizer(stored.folder)
    check_vocabulary(stored.folder, base.model, tokenizer)
    return tokenizer


@contextmanager
def base_folder(base: str) -> Iterator[str | Path]:
    """Where the files of a base model are, for the duration of the block."""
    if base.startswith(BUILTIN):
        with builtin_folder(base.removeprefix(BUILTIN)) as folder:
            yield folder
    else:
        yield base


def merge_adapter(source: Path, output: Path | None = None, *, trust: bool = False) -> Path:
    """Write the base model with the adapter in `source`, a run or an adapter directory, as a plain
    model directory (default: `merged` in `source`), and return its path.

    The sum is computed in float32 and stored in the base model's own dtype. Raises ConfigError if
    there is no adapter, its base model cannot be loaded, or `output` exists.
    """
    folder = _adapter_in(source)
    target = output or source / "merged"
    if target.exists():
        raise ConfigError(f"{target} already exists; name another directory with --output")
    section = ModelSettings(path=str(folder), dtype="float32")
    use = Use(training=False, device="cpu", trust=trust)
    policy = load_model(section, use)
    merged = policy.model.merge_and_unload().to(base_dtype(section, use))
    with replacing(target) as part:
        merged.save_pretrained(part)
        policy.tokenizer.save_pretrained(part)
    return target


def _adapter_in(source: Path) -> Path:
    """The adapter directory of a run, or `source` itself."""
    if is_adapter(source):
        return source
    run = RunDirectory(source)
    if not run.is_run():
        raise ConfigError(f"{source} is neither a run directory nor an adapter directory")
    if not run.model.is_dir():
        raise ConfigError(f"{source} contains no model yet (agentsgym train --resume {source})")
    if not is_adapter(run.model):
        raise ConfigError(
            f"{source} trained whole weights, so {run.model} is a plain model already"
        )
    return run.model
