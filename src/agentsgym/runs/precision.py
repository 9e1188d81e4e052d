"""The mixed precision of a run: float32 weights, multiplied in the model's dtype."""

from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.runs.config import RunConfig
from agentsgym.runs.machine import device_in_use, dtype_of

_SETTING = {"bfloat16": "bf16", "float16": "fp16"}


def mixed_precision(config: RunConfig) -> dict[str, Any]:
    """`bf16` and `fp16` of the trainer's settings, from `model.dtype` if `train` has neither.

    On a machine without a GPU, `use_cpu` goes with `bf16`: transformers asks for both. Raises
    ConfigError if `train` switches off what `model.dtype` names, or if the device lacks that dtype.
    """
    device = device_in_use(use_cpu=bool(config.train.get("use_cpu")))
    chosen = _given(config) or _of_model(config, device)
    on_cpu = config.train.get("use_cpu", device == "cpu")
    return chosen | ({"use_cpu": on_cpu} if chosen.get("bf16") else {})


def _given(config: RunConfig) -> dict[str, Any]:
    """What `train` has of them."""
    wanted = _SETTING.get(config.model.dtype)
    given = {key: config.train[key] for key in _SETTING.values() if key in config.train}
    if given and wanted is not None and given.get(wanted) is not True:
        raise ConfigError(
            f"model.dtype={config.model.dtype} trains with train.{wanted}=true, and train has "
            f"{given}; leave one of them out"
        )
    return given


def _of_model(config: RunConfig, device: str) -> dict[str, Any]:
    dtype = str(dtype_of(config.model, device))
    return {setting: dtype == f"torch.{name}" for name, setting in _SETTING.items()}
