"""Detects whether a vLLM server's log-probabilities are those at the sampling temperature.

vLLM's default, `--logprobs-mode raw_logprobs`, returns those at temperature 1 for any sampling
temperature; importance ratios need `processed_logprobs`. A server only reports its mode in
development mode, so we request the same distribution at two temperatures and compare: for tokens a
and b, logp(a) − logp(b) halves when the temperature doubles, if the mode is `processed_logprobs`.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

Mode = Literal["processed", "raw", "logits", "flat"]

TEMPERATURES = (1.0, 2.0)
_TOP = 5
_FLAT = 0.02  # below this gap (nats) two tokens say nothing about the mode
_NEAR = 0.2  # allowed relative error of the gap, for rounding


def probe_body(model: str, token_id: int, temperature: float) -> dict[str, Any]:
    """The request for the most likely tokens after `token_id`."""
    return {
        "model": model,
        "prompt": [token_id],
        "max_tokens": 1,
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "seed": 0,
        "logprobs": _TOP,
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
        "watermarking": False,
    }


def top_logprobs(answer: Any) -> dict[str, float]:
    """The most likely tokens and their values in an answer to `probe_body`; empty if none."""
    try:
        found = answer["choices"][0]["logprobs"]["top_logprobs"][0]
        return {token: float(value) for token, value in found.items()}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
        return {}


def mode_of(cold: Mapping[str, float], warm: Mapping[str, float]) -> Mode:
    """The mode that values at the temperatures 1 (`cold`) and 2 (`warm`) come from.

    "flat" if the distribution is too even to decide; then the mode makes no difference either.
    """
    if any(value > 1e-3 for value in (*cold.values(), *warm.values())):
        return "logits"
    if sum(math.exp(value) for value in cold.values()) > 1.01:
        return "logits"
    common = sorted(set(cold) & set(warm), key=lambda token: cold[token])
    if len(common) < 2:
        return "flat"
    before = cold[common[-1]] - cold[common[0]]
    after = warm[common[-1]] - warm[common[0]]
    if before < _FLAT:
        return "flat"
    return "processed" if abs(after - before / 2) < _NEAR * before else "raw"
