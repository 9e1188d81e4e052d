"""The simulated device: what it counts, and what torch then says of this machine."""

import contextlib
import ctypes
import hashlib
import os
import subprocess
import sys
import weakref
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch

from simgpu import graphs, tensors

_KINDS = {"cuda": 1, "mps": 13}  # c10::DeviceType
_HERE = Path(__file__).parent
_PAGE = 512  # bytes of which CUDA's allocator gives multiples


class Block:
    """Device memory, which is given back when nobody has it."""


class SimGPU:
    """The device while its `with` block runs.

    `kind` is "cuda" or "mps", `count` the number of devices, `major` the first number of their
    compute capability, `limit` the bytes of memory, beyond which torch.OutOfMemoryError is raised.

    Since `reset`, by operator or by what and where: `launches` of kernels and graphs, `syncs` (the
    CPU waits for the device), `uploads`, `downloads`, and `faults`, which code may swallow, so that
    a test asserts that there is none; `peak` bytes. `live` are the bytes that are held now.
    """

    def __init__(self, kind="cuda", count=1, major=9, limit=80 << 30):
        self.kind, self.number, self.major, self.limit = kind, count, major, limit
        self._stack, self._blocks = contextlib.ExitStack(), weakref.WeakValueDictionary()
        self.live, self.capture, self._pending = 0, None, []
        self.reset()

    def reset(self):
        """Begin to count anew; what is live stays live."""
        self.launches, self.syncs, self.uploads = Counter(), Counter(), Counter()
        self.downloads, self.faults, self.peak = Counter(), Counter(), self.live

    # -- memory --------------------------------------------------------------------------------

    def hold(self, inner, device):
        """A SimTensor of a CPU tensor, whose storage takes the device's memory."""
        if self.kind == "mps" and inner.dtype in (torch.float64, torch.complex128):
            self.fault("float64 on MPS")
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework "
                            "doesn't support float64. Please use float32 instead.")  # fmt: skip
        storage = inner.untyped_storage()
        block = self._blocks.get(storage._cdata)
        if block is None:
            block = self._blocks[storage._cdata] = self.allocate(storage.nbytes())
            if self.capture is not None:
                self.capture.made(inner)
        return tensors.SimTensor(inner, device, block)

    def allocate(self, size):
        """A block of so many bytes."""
        size = -(-size // _PAGE) * _PAGE
        if self.live + size > self.limit:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
        block = Block()
        weakref.finalize(block, self._give_back, size)
        self.live += size
        self.peak = max(self.peak, self.live)
        return block

    def _give_back(self, size):
        self.live -= size

    # -- work ----------------------------------------------------------------------------------

    def execute(self, call, written=(), recorded=True):
        """Run an operator; `written` are the CPU tensors that it changes."""
        return call() if self.capture is None else self.capture.run(call, written, recorded)

    def count(self, name, launches, waits=False):
        """Count an operator's kernels; `waits` says that the CPU then waits for them."""
        self.launches.update({name: launches} if launches else {})
        if waits:
            self.wait(name)

    def upload(self, waits=True):
        """Count a copy from the CPU to the device."""
        self.uploads[self.where()] += 1
        self._refuse_in_capture("upload")
        if waits:
            self.wait("upload")

    def download(self, source, target=None, waits=True):
        """Copy to a CPU tensor; without waiting its content is not there yet."""
        self.downloads[self.where()] += 1
        self._refuse_in_capture("download")
        target = torch.empty_like(source) if target is None else target
        if waits:
            self.wait("download")
            return target.copy_(source)
        self._pending.append((target, source.clone()))
        graphs.spoil(target)
        return target

    def wait(self, why):
        """The CPU waits until the device has done everything."""
        self.syncs[why, self.where()] += 1
        self._refuse_in_capture(why)
        for target, value in self._pending:
            target.copy_(value)
        self._pending.clear()

    def _refuse_in_capture(self, what):
        if self.capture is not None:
            self.fault(f"{what} in a capture")
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def fault(self, what):
        self.faults[what, self.where()] += 1

    def where(self):
        """The innermost line of the package, else of another caller than torch."""
        frame, other = sys._getframe(1), ""
        while frame is not None:
            name, line = frame.f_code.co_filename, frame.f_lineno
            if "/agentsgym/" in name:
                return f"{name.rpartition('/agentsgym/')[2]}:{line}"
            if not other and "/torch/" not in name and not name.startswith(str(_HERE)):
                other = f"{'/'.join(name.split('/')[-3:])}:{line}"
            frame = frame.f_back
        return other or "autograd"

    # -- this machine --------------------------------------------------------------------------

    def __enter__(self):
        _forget()
        tensors.gpu = self
        _guard.simulate(_KINDS[self.kind])
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device=…) copies openly
        on_mps = self.kind == "mps"
        self._patch(torch.cuda, **_random(), **graphs.PATCHES, **self._cuda())
        self._patch(torch.cuda.random, **_random())
        self._patch(torch.mps, **_random(), empty_cache=lambda: None)
        self._patch(torch.backends.mps, is_available=lambda: on_mps, is_built=lambda: on_mps)
        self._patch(torch.backends.mps, is_macos_or_newer=lambda *version: True)
        self._patch(torch._C, _host_emptyCache=lambda: None)
        self._patch(torch.Tensor, pin_memory=lambda tensor, device=None: tensor.clone())
        for name in ("torch.optim.optimizer", "torch.utils._foreach_utils"):
            module = sys.modules[name]
            if types := getattr(module, "_foreach_supported_types", None):
                self._patch(module, _foreach_supported_types=[*types, tensors.SimTensor])
        return self

    def __exit__(self, *error):
        self._stack.close()
        _guard.simulate(0)
        torch._C._set_only_lift_cpu_tensors(False)
        tensors.gpu = None
        _forget()

    def _patch(self, target, **new):
        for name, value in new.items():
            self._stack.enter_context(mock.patch.object(target, name, value, create=True))

    def _cuda(self):
        cuda, native = self.kind == "cuda", self.major >= 8
        about = SimpleNamespace(name="simulated", major=self.major, minor=0,
                                total_memory=self.limit, multi_processor_count=132)  # fmt: skip
        return {
            "is_available": lambda: cuda,
            "is_initialized": lambda: cuda,
            "_lazy_init": lambda: None,
            "device_count": lambda: self.number if cuda else 0,
            "current_device": lambda: 0,
            "set_device": lambda device: None,
            "device": lambda index=None: contextlib.nullcontext(),
            "get_device_name": lambda device=None: about.name,
            "get_device_capability": lambda device=None: (self.major, 0),
            "get_device_properties": lambda device=None: about,
            "is_bf16_supported": lambda including_emulation=True: (
                cuda and (native or including_emulation)
            ),
            "mem_get_info": lambda device=None: (self.limit - self.live, self.limit),
            "memory_allocated": lambda device=None: self.live,
            "memory_reserved": lambda device=None: self.live,
            "max_memory_allocated": lambda device=None: self.peak,
            "reset_peak_memory_stats": lambda device=None: None,
            "empty_cache": lambda: None,
            "synchronize": lambda device=None: self.wait("synchronize"),
        }


def _random():
    """New functions for each module, as torch wants. The numbers are the CPU generator's."""
    return {
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state_all": lambda states: None,
    }


def _forget():
    """Drop what libraries have cached about the machine's devices."""
    if "accelerate.state" in sys.modules:
        sys.modules["accelerate.state"].AcceleratorState._reset_state(reset_partial_state=True)
    for name in ("transformers.utils.import_utils", "accelerate.utils.imports"):
        for value in list(vars(sys.modules.get(name, object)).values()):
            getattr(value, "cache_clear", lambda: None)()


def _load():
    """The shared object of guard.cpp, which is made once for it and this torch."""
    source, place = _HERE / "guard.cpp", Path(torch.__file__).parent
    key = hashlib.sha256(source.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    made = _HERE.parents[1] / "build" / "simgpu" / f"{key}.so"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        part = made.with_suffix(f".{os.getpid()}")
        options = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{place}/include", f"-L{place}/lib"]
        subprocess.run(["g++", *options, source, "-o", part, "-lc10", "-ltorch_cpu"], check=True)
        part.replace(made)
    return ctypes.CDLL(str(made))


_guard = _load()
_guard.simulate(0)
_libraries = tensors.register(*_KINDS)
