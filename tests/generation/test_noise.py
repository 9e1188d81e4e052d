"""The counter hash: known values, uniformity, independence of the batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsgym.generation.sampling import as_seed, uniforms

_MASK = (1 << 64) - 1


def _by_hand(seed: int, index: int) -> float:
    """The documented formula in Python integers."""

    def h(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return x ^ (x >> 31)

    return (h(h(seed & _MASK) ^ h((index + 0xD1B54A32D192ED03) & _MASK)) >> 11) * 2.0**-53


def test_splitmix64_reference_value() -> None:
    from agentsgym.generation.sampling import _hash

    # The first outputs of the reference implementation seeded with 0 and with 1234567.
    first = _hash(np.array([0, 1234567], dtype=np.uint64))
    assert first.tolist() == [16294208416658607535, 6457827717110365317]


def test_known_values() -> None:
    values = uniforms([0, 0, 1, 2**64 - 1], [0, 1, 0, 5])
    assert values.tolist() == [_by_hand(0, 0), _by_hand(0, 1), _by_hand(1, 0), _by_hand(-1, 5)]
    # Frozen: recorded games replay only while these stay.
    assert values[:2].tolist() == pytest.approx(FROZEN, abs=1e-15)


FROZEN = [0.6035293503396654, 0.9265095780361141]


@given(st.integers(-(2**70), 2**70), st.integers(0, 2**40))
def test_formula(seed: int, index: int) -> None:
    value = uniforms([as_seed(seed)], [index])[0]
    assert value == _by_hand(seed, index)
    assert 0 <= value < 1


@pytest.mark.parametrize("axis", ["seed", "index"])
def test_uniform_along_either_argument(axis: str) -> None:
    count = 100_000
    counter, fixed = np.arange(count), np.full(count, 7)
    values = uniforms(counter, fixed) if axis == "seed" else uniforms(fixed, counter)
    histogram = np.histogram(values, bins=100, range=(0, 1))[0]
    chi_squared = ((histogram - count / 100) ** 2 / (count / 100)).sum()
    assert chi_squared < 150  # 99 degrees of freedom: exceeded with probability 0.0008
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.015
