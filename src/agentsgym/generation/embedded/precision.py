"""The dtype in which a model computes: bfloat16 where the hardware multiplies it, else float32; a
copy of a model in lower precision, from which an engine samples while the model is trained; and
passes of such a model in float32, which show errors that rounding would hide.

Training in bfloat16 keeps float32 weights and casts them in every pass (autocast). A pass that
decodes reads few tokens, so casting would cost as much as the pass itself: measured on SmolLM2 with
8 and 32 rows, autocast decodes no faster than float32, a copy in bfloat16 1.7 to 2.2 times as fast.
"""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

DTYPES = ("auto", "float32", "bfloat16", "float16")
HALF = (torch.bfloat16, torch.float16)
"""The dtypes of 16 bits."""


def resolve_dtype(name: str = "auto", device: torch.device | str | None = None) -> torch.dtype:
    """The dtype that `name` means on `device` (None: a GPU if torch sees one, else the CPU).

    "auto" is bfloat16 where the hardware multiplies it natively, else float32. Raises ValueError
    for an unknown name, and for float16 on a CPU, which multiplies it slowly and overflows.
    """
    if name not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {name!r}")
    kind = torch.device(device if device is not None else _default_device()).type
    if name == "float16" and kind == "cpu":
        raise ValueError("dtype float16 needs a GPU; on a CPU use bfloat16 or float32")
    if name == "auto":
        return torch.bfloat16 if multiplies_bfloat16(kind) else torch.float32
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def multiplies_bfloat16(kind: str) -> bool:
    """Whether a device of this kind ("cpu", "cuda") has matrix instructions for bfloat16."""
    if kind == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(False)
    return kind == "cpu" and (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )


def _default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


class ModelCopy:
    """`model` is a copy of `source` in `dtype`, with the forward pass that its class defines.

    It shares the weights that have no more bits than `dtype`, for instance the frozen base of an
    adapter, and takes half of the memory of float32 weights. Layers and adapters are
    those that `source` had when the copy was made.
    """

    def __init__(self, source: Any, dtype: torch.dtype) -> None:
        self._source = source
        self._dtype = dtype
        # What is in the memo is not copied: the weights go straight into the new dtype.
        memo: dict[int, Any] = {id(weight): self._cast(weight) for weight in source.parameters()}
        with torch.no_grad():
            self.model = copy.deepcopy(source, memo)
        _restore_forward(self.model)

    def refresh(self) -> None:
        """Take the current weights of the source, in place, or where they have moved to another
        device there."""
        with torch.no_grad():
            for weight, ours in self._pairs():
                if (ours.device, ours.shape) == (weight.device, weight.shape):
                    ours.copy_(weight)
                else:
                    ours.data = weight.detach().to(ours.dtype, copy=True)

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each weight and buffer that was copied, with its copy."""
        source, ours = ([*m.parameters(), *m.buffers()] for m in (self._source, self.model))
        return (pair for pair in zip(source, ours, strict=True) if pair[0] is not pair[1])

    def _cast(self, weight: Tensor) -> Tensor:
        """The weight itself, or a copy if it has more bits than `dtype`."""
        if not weight.is_floating_point() or weight.itemsize <= self._dtype.itemsize:
            return weight
        return torch.nn.Parameter(weight.detach().to(self._dtype), requires_grad=False)


def _restore_forward(model: Any) -> None:
    """Remove what a trainer set on modules: hooks, and forward passes, which would run the source,
    because they hold its bound methods, and which cast (accelerate) or return no logits (TRL)."""
    for module in model.modules():
        vars(module).pop("forward", None)
        for name, value in vars(module).items():
            if name.startswith(("_forward_", "_backward_")) and isinstance(value, dict):
                value.clear()


def is_half(model: Any) -> bool:
    """Whether weights of the model have 16 bits."""
    return any(weight.dtype in HALF for weight in model.parameters())


def exactly(model: Any, device: torch.device) -> AbstractContextManager[Any]:
    """A context in which `model` computes in float32 if it has weights in 16 bits."""
    return InFloat32(device.type) if is_half(model) else nullcontext()


class InFloat32(TorchFunctionMode):
    """Within it, operators on the device `kind` compute in float32 what would be in 16 bits.

    Weights stay as they are and are cast for the operator that reads them, so that a pass needs no
    copy of the model.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._autocast = torch.autocast(kind, enabled=False)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # A weight's shape or dtype needs no cast, a few rows of it none of the others.
        if func is not embedding and getattr(func, "__name__", "") != "__get__":
            args, kwargs = tree_map(_widened, (args, kwargs))
        with self._autocast:
            return _widened(func(*args, **kwargs or {}))


def _widened(value: Any) -> Any:
    """A tensor in 16 bits, or its dtype, in float32; anything else as it is."""
    if isinstance(value, Tensor) and value.dtype in HALF:
        return value.float()
    return torch.float32 if isinstance(value, torch.dtype) and value in HALF else value
