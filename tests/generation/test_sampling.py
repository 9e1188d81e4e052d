"""Truncation, inverse CDF and logprobs against brute force."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentsgym.generation.sampling import (
    as_seed,
    inverse_cdf,
    log_softmax,
    sample,
    truncate,
    uniforms,
)
from agentsgym.types import SamplingParams

_ROWS = st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=12)


def _brute_truncate(probabilities: list[float], top_k: int, top_p: float) -> set[int]:
    order = sorted(range(len(probabilities)), key=lambda i: (-probabilities[i], i))
    order = order[: top_k or len(order)]
    total = sum(probabilities[i] for i in order)
    kept, mass = set(), 0.0
    for i in order:
        if kept and top_p < 1 and mass >= top_p * total:
            break
        kept.add(i)
        mass += probabilities[i]
    return kept


@given(_ROWS, st.integers(0, 13), st.floats(0.05, 1.0))
def test_truncation_keeps_the_likeliest(row: list[float], top_k: int, top_p: float) -> None:
    probabilities = torch.tensor([row]).double().softmax(-1)
    kept = truncate(probabilities, torch.tensor([top_k]), torch.tensor([top_p]).double())
    expected = _brute_truncate(probabilities[0].tolist(), top_k, top_p)
    actual = set(kept[0].nonzero()[:, 0].tolist())
    if actual != expected:  # only a sum that rounds across the edge may differ, by one token
        assert len(actual ^ expected) == 1
        left = probabilities[0].topk(min(top_k or len(row), len(row))).values.sum()
        mass = probabilities[0, list(expected & actual)].sum()
        assert float(mass) == pytest.approx(top_p * float(left), abs=1e-6)
    assert torch.equal(kept[kept > 0], probabilities[kept > 0])


@given(_ROWS, st.floats(0, 1, exclude_max=True))
def test_inverse_cdf_is_the_first_token_past_the_uniform(row: list[float], u: float) -> None:
    probabilities = torch.tensor([row]).softmax(-1)
    token = int(inverse_cdf(probabilities, torch.tensor([u], dtype=torch.float64)))
    cdf = probabilities[0].double().cumsum(0)
    assert token == next((i for i, c in enumerate(cdf) if c > u * cdf[-1]), None)


def test_inverse_cdf_never_picks_the_impossible() -> None:
    probabilities = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.0]]).repeat(3, 1)
    u = torch.tensor([0.0, 0.5, 1 - 2.0**-53], dtype=torch.float64)
    assert inverse_cdf(probabilities, u).tolist() == [1, 3, 3]


def test_rows_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    logits = torch.randn(20, 50) * 3
    u = torch.rand(20, dtype=torch.float64)
    options = (
        torch.tensor([0.0, 0.3, 1.0, 2.0] * 5),
        torch.tensor([0, 1, 5, 49, 50] * 4),
        torch.tensor([1.0, 0.9, 0.5, 0.1] * 5),
    )
    ids, logprobs, kept = sample(logits, u, *options)
    for i in range(20):
        one = slice(i, i + 1)
        alone = sample(logits[one], u[one], *(column[one] for column in options))
        assert alone[0].item() == ids[i].item()
        assert alone[1].item() == pytest.approx(logprobs[i].item(), abs=1e-6)
        assert torch.equal(alone[2][0], kept[i])


def test_logprobs_are_those_of_what_truncation_left_at_the_temperature() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]] * 4)
    temperature = torch.tensor([0.0, 1.0, 0.5, 1.0])
    high = torch.full((4,), 0.9).double()
    ids, logprobs, kept = sample(logits, high, temperature, torch.tensor([2, 2, 2, 0]))
    assert ids.tolist() == [2, 2, 2, 2]
    at_one, at_half = 2 - math.log(math.e + math.e**2), 4 - math.log(math.e**2 + math.e**4)
    whole = 2 - math.log(1 + math.e + math.e**2)
    assert logprobs.tolist() == pytest.approx([at_one, at_one, at_half, whole], abs=1e-6)
    assert kept is not None and kept.tolist() == [[False, True, True]] * 3 + [[True] * 3]
    assert sample(logits, high, temperature)[2] is None
    assert torch.equal(log_softmax(logits[:1]), log_softmax(logits[:1], torch.tensor([0.0])))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": math.nan}, "temperature must be a finite number of at least 0, got nan"),
        ({"temperature": math.inf}, "temperature must be a finite number"),
        ({"top_p": math.nan}, "top_p must be in"),
        ({"max_tokens": math.nan}, "max_tokens must be a whole number"),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"top_k": math.nan}, "top_k must be 0"),
        ({"stop": "abc"}, "stop must be a tuple of texts, got 'abc'"),
    ],
)
def test_sampling_takes_no_other_values(options, words):
    with pytest.raises(ValueError, match=words):
        SamplingParams(**options)


_MASK = (1 << 64) - 1


def _by_hand(seed: int, index: int) -> float:
    """The documented formula in Python integers."""

    def h(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return x ^ (x >> 31)

    return (h(h(seed & _MASK) ^ h((index + 0xD1B54A32D192ED03) & _MASK)) >> 11) * 2.0**-53


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
