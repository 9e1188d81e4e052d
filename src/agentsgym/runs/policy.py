"""The model that a run starts from."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.envs import ConfigError
from agentsgym.runs.agents import scripted_agent
from agentsgym.runs.checkpoints import model_damage
from agentsgym.runs.config import LARGEST_SEED, RunConfig, check_keys
from agentsgym.runs.progress import Progress
from agentsgym.runs.settings import make_env

if TYPE_CHECKING:
    from agentsgym.training.warm_start.loop import WarmStartConfig

_FIGURES = "figures.json"
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "tokenizer_config.json",
)


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model and its tokenizer; `figures` say how it was made."""

    model: Any
    tokenizer: Any
    figures: dict[str, Any] = field(default_factory=dict)


def load_policy(config: RunConfig, progress: Progress) -> Policy:
    """The model that `config.model` names. Raises ConfigError where there is none."""
    if config.model == "tiny":
        return _warm_start(config, progress)
    kind, _, name = config.model.partition(":")
    if kind == "builtin":
        return _load_builtin(name)
    return load_pretrained(config.model)


def load_tokenizer(config: RunConfig) -> Any:
    """The tokenizer of the model that `config.model` names, without its weights.

    Raises ConfigError where there is none.
    """
    from transformers import AutoTokenizer

    if config.model == "tiny":
        raise ConfigError("model: 'tiny' is made in this process, so no server can serve it")
    kind, _, name = config.model.partition(":")
    if kind == "builtin":
        return _load_builtin(name).tokenizer
    try:
        return AutoTokenizer.from_pretrained(config.model, trust_remote_code=False)
    except Exception as error:  # the loaders raise all kinds of errors for damaged files
        raise _cannot_load(config.model, _reason(error)) from error


def load_pretrained(path: str | Path) -> Policy:
    """A model directory or hub name, in single precision. Nothing but safetensors is read, and no
    code that comes with a model. Raises ConfigError where it cannot be loaded whole."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    folder = Path(path)
    if folder.is_dir() and not (folder / "adapter_config.json").is_file():
        _check_folder(folder)
    try:
        if not (folder / "adapter_config.json").is_file():
            _refuse_kernels(AutoConfig.from_pretrained(path, trust_remote_code=False))
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        tokenizer.encode("text", add_special_tokens=False)
        model, loading = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=torch.float32,
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            output_loading_info=True,
        )
    except Exception as error:  # the loaders raise all kinds of errors for damaged files
        raise _cannot_load(path, _reason(error)) from error
    _check_loaded(path, model, tokenizer, loading)
    return Policy(model, tokenizer)


def _refuse_kernels(config: Any) -> None:
    """Raise ValueError where a model's configuration names attention that would be downloaded: it
    is code."""
    parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", ())]
    for part in (config, *parts):
        named = str(getattr(part, "_attn_implementation", None) or "")
        if "/" in named:
            raise ValueError(
                f"its config.json names the attention {named!r}, which is code of the hub; "
                "take attn_implementation out of it"
            )


def _cannot_load(path: str | Path, reason: str) -> ConfigError:
    return ConfigError(f"model {str(path)!r} cannot be loaded: {reason}")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {text}"


def _check_folder(folder: Path) -> None:
    """Raise ConfigError naming the file of a model directory that is missing or damaged."""
    problem = model_damage(folder)
    if problem is not None:
        raise _cannot_load(folder, problem)
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise _cannot_load(folder, "it has no tokenizer (tokenizer.json)")


def _check_loaded(path: str | Path, model: Any, tokenizer: Any, loading: Mapping[str, Any]) -> None:
    """Raise ConfigError where weights were made up or are no numbers, or the tokenizer is
    another model's."""
    kind = type(model).__name__
    misfits = [
        entry[0] if isinstance(entry, tuple) else entry
        for entry in sorted(loading["mismatched_keys"])
    ]
    if misfits:
        raise _cannot_load(path, f"{misfits[0]!r} in its files has another shape than config.json")
    missing = sorted(loading["missing_keys"])
    if missing:
        lacks = f"its files lack {len(missing)} weights of a {kind}, {missing[0]!r} among them"
        raise _cannot_load(path, lacks)
    for name, parameter in model.named_parameters():
        if not math.isfinite(float(parameter.detach().sum())):
            raise _cannot_load(path, f"the weights {name!r} are not finite")
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        wrong = f"its tokenizer has {len(tokenizer)} tokens and the model's embedding {rows}"
        raise _cannot_load(path, wrong)


def builtin_models() -> list[str]:
    """Names of the checkpoints that ship with the package."""
    folder = files("agentsgym") / "presets"
    return sorted(entry.name for entry in folder.iterdir() if (entry / "config.json").is_file())


def _load_builtin(name: str) -> Policy:
    known = builtin_models()
    if name not in known:
        names = ", ".join(known) or "none"
        raise ConfigError(f"no model ships as 'builtin:{name}'; there are: {names}")
    with as_file(files("agentsgym") / "presets" / name) as folder:
        policy = load_pretrained(folder)
        notes = folder / _FIGURES
        figures = json.loads(notes.read_text(encoding="utf-8")) if notes.is_file() else {}
    return Policy(policy.model, policy.tokenizer, figures)


def _warm_start(config: RunConfig, progress: Progress) -> Policy:
    from agentsgym.training.warm_start.loop import warm_start

    env = make_env(config)
    settings = warm_start_settings(config.warm_start)
    seed = config.warm_start.get("seed", 0)

    def report(step: int, steps: int, values: Mapping[str, float]) -> None:
        progress.warm_start(step, steps, values)

    try:
        teacher = scripted_agent(env, "teacher", seed=seed)
    except ConfigError as error:
        raise ConfigError(
            f"model: tiny imitates a teacher first, but {error}; or let 'model' name a model"
        ) from error
    result = warm_start(env, teacher, settings, seed, progress=report)
    figures = dict(result.figures) | {"settings": config.warm_start}
    return Policy(result.model, result.tokenizer, figures)


def warm_start_settings(given: Mapping[str, Any]) -> "WarmStartConfig":
    """`warm_start` of a RunConfig: fields of `WarmStartConfig` (`model` holds those of
    `TinyConfig`), and `seed`. Raises ConfigError naming an unknown key or a bad value."""
    from agentsgym.training.warm_start.loop import WarmStartConfig
    from agentsgym.training.warm_start.tiny import TinyConfig

    check_keys(given, {"seed", *_names(WarmStartConfig)}, "warm_start.")
    check_keys(given.get("model", {}), _names(TinyConfig), "warm_start.model.")
    seed = given.get("seed", 0)
    if type(seed) is not int or not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"warm_start.seed must be a whole number from 0, got {seed!r}")
    fields = {name: value for name, value in given.items() if name not in ("seed", "model")}
    try:
        return WarmStartConfig(**fields, model=TinyConfig(**given.get("model", {})))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"warm_start: {error}") from error


def _names(kind: Any) -> set[str]:
    return {entry.name for entry in dataclasses.fields(kind)}
