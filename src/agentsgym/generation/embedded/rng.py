"""Sampling noise that belongs to a session: one uniform per sampled token, from a counter hash.

With `mix` the finalizer of splitmix64 (Steele, Lea and Flood 2014) and all arithmetic modulo
2**64, the uniform of token `index` under `seed` is

    h(x)        = mix(x + 0x9E3779B97F4A7C15)
    bits        = h(h(seed) ^ h(index + 0xD1B54A32D192ED03))
    u           = (bits >> 11) * 2**-53            in [0, 1)

so it depends only on this pair: not on the batch, the device or the order of sampling.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

UInts = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_INDEX_OFFSET = np.uint64(0xD1B54A32D192ED03)
_MASK = (1 << 64) - 1


def as_seed(seed: int) -> int:
    """Any Python int, also negative or huge, as the 64-bit seed to which it is congruent."""
    return seed & _MASK


def uniforms(
    seeds: UInts | Sequence[int], indices: npt.NDArray[Any] | Sequence[int]
) -> npt.NDArray[np.float64]:
    """One float64 in [0, 1) for each pair of (`seeds`, `indices`), both of shape [n]."""
    seed_bits = np.asarray(seeds, dtype=np.uint64)
    index_bits = np.asarray(indices).astype(np.uint64)
    bits = _hash(_hash(seed_bits) ^ _hash(index_bits + _INDEX_OFFSET))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _hash(values: UInts) -> UInts:
    """splitmix64 of each value; array arithmetic in uint64 wraps without a warning, as intended."""
    x = values + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
