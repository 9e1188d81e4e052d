"""A model's weights one after the other, those of a sharded model gathered from all processes.

The invariant: of a sharded model no process holds more than one whole weight at a time, besides
what the caller keeps.
"""

from collections.abc import Callable, Iterator
from typing import Any

from agentsgym.generation.vllm.weights import WeightSyncError

_ASK = (
    "whole models and from those of FSDP2: set fsdp_version: 2, train with ZeRO-2, or use TRL's "
    "own vLLM (use_vllm)"
)
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


def is_sharded(model: Any) -> bool:
    """Whether the parameters of a model are spread over processes.

    Raises WeightSyncError for a model that FSDP1 or DeepSpeed ZeRO-3 shards.
    """
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise WeightSyncError("FSDP1 shards the model; weights go to vLLM servers from " + _ASK)
    if any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        raise WeightSyncError(
            "DeepSpeed ZeRO-3 shards the model; weights go to vLLM servers from " + _ASK
        )
    return any(_is_shard(parameter) for parameter in model.parameters())


def whole_weights(
    model: Any, *, tied: bool = False, wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[tuple[str, Any]]:
    """The names and tensors of a model's state, those that are `wanted`.

    A weight that is tied to an earlier one is only there with `tied`. A tensor is valid until the
    next one is taken. Of a sharded model every process must take all.
    """
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        plain = _plain(name)
        if not wanted(plain) or (id(tensor) in seen and not tied):
            continue
        seen.add(id(tensor))
        whole = tensor.full_tensor() if _is_shard(tensor) else tensor
        yield plain, whole.detach()


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _is_shard(tensor: Any) -> bool:
    return hasattr(tensor, "full_tensor")
