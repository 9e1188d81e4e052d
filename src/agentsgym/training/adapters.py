"""The weights of LoRA adapters (PEFT) in files.

PEFT's own loader also reads a configuration beside the weights, which may name modules to import,
and pickled weights. Here only tensors are read, into adapters that the model already has.
"""

from pathlib import Path
from typing import Any

from safetensors.torch import load_file

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
MAIN = "default"
"""PEFT's name of the adapter in a directory itself; others are in folders of their name."""


def load_adapters(model: Any, folder: Path) -> None:
    """Load the weights of every adapter of `model` for which `folder` has some.

    Raises ValueError if they belong to another adapter.
    """
    for name in model.peft_config:
        inside = folder if name == MAIN else folder / name
        if (inside / WEIGHTS).is_file():
            load_adapter(model, inside, name)


def load_adapter(model: Any, folder: Path, name: str = MAIN) -> None:
    """Load the weights in `folder` into the adapter `name` of `model`.

    Raises ValueError if they belong to another adapter, FileNotFoundError if there are none.
    """
    from peft import set_peft_model_state_dict

    stored = load_file(str(folder / WEIGHTS))
    try:
        found = set_peft_model_state_dict(model, stored, adapter_name=name)
    except (RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{folder}: the adapter does not fit the model ({reason})") from None
    lacks = [key for key in found.missing_keys if f".{name}." in key]
    if lacks:
        raise ValueError(f"{folder}: the adapter lacks {len(lacks)} weights, {lacks[0]!r} first")
    if found.unexpected_keys:
        more = found.unexpected_keys
        raise ValueError(f"{folder}: the model has no place for {more[0]!r} of the adapter")
