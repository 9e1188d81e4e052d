"""The numbers a model computes with: bfloat16 where the hardware multiplies it, else float32."""

from functools import cache
from pathlib import Path

import torch

DTYPES = ("auto", "float32", "bfloat16", "float16")

_CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = {"amx_bf16", "avx512_bf16"}


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
    return kind == "cpu" and not _BFLOAT16_FLAGS.isdisjoint(cpu_flags())


@cache
def cpu_flags() -> frozenset[str]:
    """The instruction sets of the first CPU, as Linux names them; empty on other systems."""
    if not _CPUINFO.is_file():
        return frozenset()
    for line in _CPUINFO.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
