"""Models and tokenizers from a directory or a hub: checked safetensors weights, no code."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.runs.checkpoints import model_damage

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
    """A causal language model and its tokenizer; `figures` describe its warm start."""

    model: Any
    tokenizer: Any
    figures: dict[str, Any] = field(default_factory=dict)


def load_pretrained(path: str | Path) -> Policy:
    """A model directory or hub name, in single precision. Only safetensors files are read, and a
    model's own code is never run. Raises ConfigError if it cannot be loaded completely."""
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
            ignore_mismatched_sizes=True,  # mismatches are refused below, by name
            output_loading_info=True,
        )
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        raise _cannot_load(path, _reason(error)) from error
    _check_loaded(path, model, tokenizer, loading)
    return Policy(model, tokenizer)


def pretrained_tokenizer(path: str | Path) -> Any:
    """The tokenizer of a model directory or hub name, without its weights. Raises ConfigError if
    it does not exist."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        raise _cannot_load(path, _reason(error)) from error


def _refuse_kernels(config: Any) -> None:
    """Raise ValueError if a model's configuration names an attention kernel that transformers
    would download: it is code."""
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
    """Raise ConfigError with the name of a missing or damaged file of a model directory."""
    problem = model_damage(folder)
    if problem is not None:
        raise _cannot_load(folder, problem)
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise _cannot_load(folder, "it has no tokenizer (tokenizer.json)")


def _check_loaded(path: str | Path, model: Any, tokenizer: Any, loading: Mapping[str, Any]) -> None:
    """Raise ConfigError if weights are missing or not finite, or if the tokenizer belongs to
    another model."""
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
