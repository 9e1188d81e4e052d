"""A model's weights one after the other, those of a sharded model gathered from all processes.

The invariant: of a sharded model no process holds more than one whole weight at a time, besides
what the caller keeps.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from agentsgym.generation.vllm.weights import WeightSyncError

_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


def is_sharded(model: Any) -> bool:
    """Whether the parameters of a model are spread over processes.

    Raises WeightSyncError for a model that is sharded by FSDP1.
    """
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise WeightSyncError(
            "the model is sharded by FSDP1, whose weights cannot be gathered one by one: set "
            "fsdp_version: 2"
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
        with _whole(tensor) as whole:
            yield plain, whole.detach()


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _is_shard(tensor: Any) -> bool:
    return hasattr(tensor, "ds_id") or hasattr(tensor, "full_tensor")


def _whole(tensor: Any) -> AbstractContextManager[Any]:
    return _zero3(tensor) if hasattr(tensor, "ds_id") else _dtensor(tensor)


@contextmanager
def _dtensor(tensor: Any) -> Iterator[Any]:
    yield tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


@contextmanager
def _zero3(tensor: Any) -> Iterator[Any]:
    import deepspeed

    with deepspeed.zero.GatheredParameters([tensor]):
        yield tensor.data
