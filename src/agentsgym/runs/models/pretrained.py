"""Models and tokenizers from a directory or a hub: checked safetensors weights, no code."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from agentsgym.envs import ConfigError
from agentsgym.runs.checkpoints import model_damage

_HUB_SECONDS = 15.0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How weights are loaded.

    Args:
        dtype: torch's name of their dtype.
        revision: branch or commit on the hub.
        attn_implementation: transformers' name; None: its choice.
        quantization: "4bit" or "8bit" of bitsandbytes, or None.
        download: whether missing files may come from the hub.
    """

    dtype: str = "float32"
    revision: str | None = None
    attn_implementation: str | None = None
    quantization: str | None = None
    download: bool = True

    @property
    def source(self) -> dict[str, Any]:
        """The arguments of every loader of transformers."""
        return {
            "revision": self.revision or "main",
            "local_files_only": not self.download,
            "trust_remote_code": False,
        }

    @property
    def weights(self) -> dict[str, Any]:
        """The arguments of the loader of weights."""
        import torch

        found: dict[str, Any] = {"dtype": getattr(torch, self.dtype), "use_safetensors": True}
        if self.attn_implementation is not None:
            found["attn_implementation"] = self.attn_implementation
        if self.quantization is not None:
            found["quantization_config"] = _bitsandbytes(self.quantization, found["dtype"])
            found["device_map"] = {"": torch.cuda.current_device()}
        return found


def load_pretrained(path: str | Path, loading: Loading | None = None) -> Policy:
    """A model directory or hub name, by default in single precision. Only safetensors files are
    read, and a model's own code is never run. Raises ConfigError if it cannot be loaded completely,
    or if it is an adapter."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    loading = loading or Loading()
    folder = Path(path)
    if folder.is_dir():
        _check_folder(folder)
    try:
        _ask_hub(path, loading)
        _refuse_adapter(path, loading)
        _refuse_kernels(AutoConfig.from_pretrained(path, **loading.source), loading)
        tokenizer = AutoTokenizer.from_pretrained(path, **loading.source)
        tokenizer.encode("text", add_special_tokens=False)
        model, found = AutoModelForCausalLM.from_pretrained(
            path,
            **loading.source,
            **loading.weights,
            ignore_mismatched_sizes=True,  # mismatches are refused below, by name
            output_loading_info=True,
        )
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        raise _cannot_load(path, _reason(error)) from error
    _check_loaded(path, model, tokenizer, found)
    return Policy(model, tokenizer)


def pretrained_tokenizer(path: str | Path, loading: Loading | None = None) -> Any:
    """The tokenizer of a model directory or hub name, without its weights. Raises ConfigError if
    it does not exist."""
    from transformers import AutoTokenizer

    try:
        _ask_hub(path, loading or Loading())
        return AutoTokenizer.from_pretrained(path, **(loading or Loading()).source)
    except Exception as error:  # the loaders raise many kinds of errors for damaged files
        raise _cannot_load(path, _reason(error)) from error


def has_tokenizer(folder: Path) -> bool:
    """Whether a directory contains a tokenizer."""
    return any((folder / name).is_file() for name in _TOKENIZER_FILES)


def _bitsandbytes(quantization: str, dtype: Any) -> Any:
    from transformers import BitsAndBytesConfig

    if quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def _ask_hub(path: str | Path, loading: Loading) -> None:
    """Raise OSError if a model must come from the hub and that does not answer: transformers would
    ask again and again for minutes."""
    from huggingface_hub import constants, try_to_load_from_cache

    here = Path(path).is_dir() or isinstance(
        try_to_load_from_cache(str(path), "config.json", revision=loading.revision), str
    )
    if here or constants.HF_HUB_OFFLINE or not loading.download:
        return
    try:
        request = Request(constants.ENDPOINT, method="HEAD")  # noqa: S310 - the user's own hub
        urlopen(request, timeout=_HUB_SECONDS).close()  # noqa: S310
    except HTTPError:  # it answers
        return
    except OSError as error:
        raise OSError(f"{constants.ENDPOINT} does not answer ({error})") from None


def _refuse_adapter(path: str | Path, loading: Loading) -> None:
    """Raise ValueError for an adapter on the hub, whose base transformers would download."""
    from transformers.utils.peft_utils import find_adapter_config_file

    if find_adapter_config_file(
        str(path), revision=loading.revision, local_files_only=not loading.download
    ):
        raise ValueError(
            "it is an adapter; download it into a directory (hf download NAME --local-dir DIR) and "
            "name that"
        )


def _refuse_kernels(config: Any, loading: Loading) -> None:
    """Raise ValueError if a model's configuration or class names an attention kernel that
    transformers would download: it is code."""
    from transformers import AutoModelForCausalLM

    parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", ())]
    for part in (config, *parts):
        named = str(getattr(part, "_attn_implementation", None) or "")
        if "/" in named:
            raise ValueError(
                f"its config.json names the attention {named!r}, which is code of the hub; "
                "take attn_implementation out of it"
            )
    flash = loading.attn_implementation or ""
    if flash.startswith("flash") and type(config) in AutoModelForCausalLM._model_mapping:
        kind = AutoModelForCausalLM._model_mapping[type(config)]
        kernels = getattr(kind, "_compatible_flash_implementations", None) or ()
        if kernels and flash not in kernels:
            raise ValueError(
                f"it runs with {' or '.join(kernels)} instead of {flash}, which is code of the "
                "hub; leave model.attn_implementation out"
            )


def _cannot_load(path: str | Path, reason: str) -> ConfigError:
    where = "" if Path(path).is_dir() else "there is no such directory, and from the hub: "
    return ConfigError(f"model {str(path)!r} cannot be loaded: {where}{reason}")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {text}"


def _check_folder(folder: Path) -> None:
    """Raise ConfigError with the name of a missing or damaged file of a model directory."""
    problem = model_damage(folder)
    if problem is not None:
        raise _cannot_load(folder, problem)
    if not has_tokenizer(folder):
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
        if not math.isfinite(float(parameter.detach().float().sum())):
            raise _cannot_load(path, f"the weights {name!r} are not finite")
    check_vocabulary(path, model, tokenizer)


def check_vocabulary(path: str | Path, model: Any, tokenizer: Any) -> None:
    """Raise ConfigError if a tokenizer has more tokens than a model reads."""
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        wrong = f"its tokenizer has {len(tokenizer)} tokens and the model's embedding {rows}"
        raise _cannot_load(path, wrong)
