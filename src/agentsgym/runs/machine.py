"""Whether this machine can carry out the settings of a model, asked before anything is loaded."""

from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.envs.extras import ensure, installed
from agentsgym.runs.settings import ModelSettings

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
    if name.startswith("flash"):
        _check_flash(name, device)
    if model.quantization is not None:
        if device == "cpu":
            raise ConfigError(
                f"model.quantization={model.quantization} needs a GPU, and there is none in use "
                "here; leave it out"
            )
        ensure("bitsandbytes", "quantized")


def _check_flash(name: str, device: str) -> None:
    if name not in _FLASH:
        raise ConfigError(
            f"model.attn_implementation={name} is not one of {', '.join(_FLASH)}, sdpa, eager"
        )
    if device == "cpu":
        raise ConfigError(
            f"model.attn_implementation={name} needs a GPU, and there is none in use here; leave "
            "it out, or name sdpa"
        )
    if not installed(_FLASH[name]):
        raise ConfigError(
            f"model.attn_implementation={name} needs the package {_FLASH[name]}, which is not "
            "installed here; leave it out, or name sdpa"
        )


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
