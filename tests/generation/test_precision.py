"""Which numbers a model computes with, and that bfloat16 gives the results it must."""

import pytest
import torch

from agentsgym.generation.embedded import precision
from agentsgym.generation.embedded.precision import resolve_dtype

CPU_LINES = (
    "processor\t: 0\nvendor_id\t: X\nflags\t\t: fpu sse2 {}\n\nprocessor\t: 1\nflags\t\t: fpu\n"
)


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    """Lets the CPU report other instruction sets."""

    def report(text: str | None) -> None:
        path = tmp_path / "cpuinfo"
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(precision, "_CPUINFO", path)
        precision.cpu_flags.cache_clear()

    yield report
    precision.cpu_flags.cache_clear()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("avx512_bf16", torch.bfloat16),
        ("amx_tile amx_bf16", torch.bfloat16),
        ("avx512f avx512_vnni", torch.float32),
        ("amx_tile amx_int8", torch.float32),
    ],
)
def test_auto_is_bfloat16_on_a_cpu_that_multiplies_it(cpuinfo, flags, expected):
    cpuinfo(CPU_LINES.format(flags))
    assert resolve_dtype("auto", "cpu") == expected


def test_auto_is_float32_where_the_cpu_is_unknown(cpuinfo):
    cpuinfo(None)
    assert resolve_dtype("auto", "cpu") == torch.float32


@pytest.mark.parametrize(("native", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_on_a_gpu_asks_for_native_bfloat16(monkeypatch, native, expected):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda emulation=True: asked.append(emulation) or native
    )
    assert resolve_dtype() == expected
    assert asked == [False]


def test_auto_is_float32_on_other_devices():
    assert resolve_dtype("auto", "mps") == torch.float32


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_named_dtype_is_taken_as_it_is(name):
    assert resolve_dtype(name, "cpu") == getattr(torch, name)


def test_float16_is_for_gpus():
    assert resolve_dtype("float16", "cuda") == torch.float16
    with pytest.raises(ValueError, match="float16 needs a GPU"):
        resolve_dtype("float16", "cpu")


def test_an_unknown_dtype_is_refused_with_the_allowed_ones():
    with pytest.raises(ValueError, match="one of auto, float32, bfloat16, float16, got 'fp8'"):
        resolve_dtype("fp8")
