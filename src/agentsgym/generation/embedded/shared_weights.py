"""A model for another process: its structure as bytes, and its weights in memory that both share.

Both sides are processes of one program, which trust each other: the structure is a pickle.
"""

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

_ALIGNMENT = 64
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class CannotSend(ValueError):
    """The model has a part that cannot be sent to another process."""


class SharedMemory:
    """Memory of `size` bytes without a name, which ends with the processes that have it open.

    `fileno` is the descriptor with which a child process opens the same memory.
    """

    def __init__(self, size: int, fileno: int | None = None) -> None:
        if fileno is None:
            self._file = _nameless_file()
            self._file.truncate(max(size, 1))
        else:
            self._file = open(fileno, "r+b")  # noqa: SIM115 - kept open
        self._map = mmap.mmap(self._file.fileno(), max(size, 1))

    @property
    def fileno(self) -> int:
        """The descriptor of the memory."""
        descriptor: int = self._file.fileno()
        return descriptor

    def views(self, specs: list["Spec"]) -> list[Tensor]:
        """A tensor for each spec, one after another in the memory."""
        found = []
        for spec, start in zip(specs, _starts(specs), strict=True):
            dtype, shape = spec
            count = shape.numel()
            flat = torch.frombuffer(self._map, dtype=dtype, count=count, offset=start)
            found.append(flat.view(shape))
        return found


def _nameless_file() -> Any:
    """A file in memory where the system has such. Not in /dev/shm: containers limit that to a few
    megabytes, and a process that writes beyond the limit is killed."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("agentsgym-weights"), "r+b")
    return tempfile.TemporaryFile()


Spec = tuple[torch.dtype, torch.Size]
"""Type and shape of a tensor in the memory."""


def bytes_of(specs: list[Spec]) -> int:
    """How much memory the tensors take."""
    *_, end = [0, *_starts([*specs, (torch.uint8, torch.Size([1]))])]
    return end


def _starts(specs: list[Spec]) -> Iterator[int]:
    end = 0
    for dtype, shape in specs:
        yield end
        size = dtype.itemsize * shape.numel()
        end += -(-size // _ALIGNMENT) * _ALIGNMENT


class ModelParts:
    """The parameters and buffers of a model, each once, and its structure without them.

    `dtype` is that in which weights of more bits are sent; None sends all as they are. Raises
    CannotSend with the part that cannot be sent.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        named = [*model.named_parameters(), *model.named_buffers()]
        self.tensors = [tensor for _, tensor in named if tensor.numel()]
        self.specs = [(self._type(tensor), tensor.shape) for tensor in self.tensors]
        self.structure = _structure(model, self.tensors)

    def write(self, views: list[Tensor]) -> None:
        """Copy the current values into the memory."""
        with torch.no_grad():
            for tensor, view in zip(self.tensors, views, strict=True):
                view.copy_(tensor)

    def _type(self, tensor: Tensor) -> torch.dtype:
        ours, given = self._dtype, tensor.dtype
        wider = tensor.is_floating_point() and ours is not None and given.itemsize > ours.itemsize
        return ours if wider and ours is not None and isinstance(tensor, nn.Parameter) else given


class _Pickler(pickle.Pickler):
    """Pickles modules without hooks, without forward passes that a trainer set on objects, and with
    a number in place of each of `tensors`."""

    def __init__(self, file: io.BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._numbers = {id(tensor): number for number, tensor in enumerate(tensors)}

    def persistent_id(self, obj: Any) -> tuple[int, bool] | None:
        number = self._numbers.get(id(obj)) if isinstance(obj, Tensor) else None
        return None if number is None else (number, isinstance(obj, nn.Parameter))

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, RemovableHandle):  # it would bring its hook with it
            return _nothing, ()
        if not isinstance(obj, nn.Module):
            return NotImplemented
        state = {name: value for name, value in vars(obj).items() if name != "forward"}
        state |= {name: type(state[name])() for name in _HOOKS if name in state}
        return _new_module, (type(obj),), state


def _nothing() -> None:
    """In the place of what is left out."""


def _new_module(kind: type[nn.Module]) -> nn.Module:
    return kind.__new__(kind)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors
        self._parameters: dict[int, nn.Parameter] = {}

    def persistent_load(self, pid: tuple[int, bool]) -> Tensor:
        number, is_parameter = pid
        if not is_parameter:
            return self._tensors[number]
        made = self._parameters.get(number)
        if made is None:
            made = nn.Parameter(self._tensors[number], requires_grad=False)
            self._parameters[number] = made
        return made


def _structure(model: nn.Module, tensors: list[Tensor]) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, tensors).dump(model)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CannotSend(f"the model cannot be sent to another process: {error}") from error
    return file.getvalue()


class ModelInMemory:
    """The other side: `model` has the structure and weights of its own, which `refresh` copies from
    the memory."""

    def __init__(
        self, structure: bytes, specs: list[Spec], memory: SharedMemory, device: str
    ) -> None:
        self._views = memory.views(specs)
        self._tensors = [view.to(device, copy=True) for view in self._views]
        # Our own parent process made it.
        self.model: Any = _Unpickler(io.BytesIO(structure), self._tensors).load()

    def refresh(self) -> None:
        """Take the current values in the memory."""
        with torch.no_grad():
            for view, tensor in zip(self._views, self._tensors, strict=True):
                tensor.copy_(view)
