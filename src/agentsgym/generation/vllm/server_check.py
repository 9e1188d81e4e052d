"""What a vLLM server must be like before it is used: its log-probabilities, its prefills.

vLLM's default, `--logprobs-mode raw_logprobs`, returns those at temperature 1 for any sampling
temperature; importance ratios need `processed_logprobs`. A server only reports its mode in
development mode, so we request the same distribution at two temperatures and compare: for tokens a
and b, logp(a) − logp(b) halves when the temperature doubles, if the mode is `processed_logprobs`.

vLLM 0.31 rewinds the random generator of a request whose prefill was split (`set_offset` in its
`gpu_model_runner`). A CPU's generator cannot be rewound ("CPU Generator does not use offset"), so
the server's engine crashes. It happens with requests that have a seed, and all of ours have one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentsgym.generation.http import HttpError, JsonClient

Mode = Literal["processed", "raw", "logits", "flat"]

TEMPERATURES = (1.0, 2.0)
_TOP = 5
_FLAT = 0.02  # below this gap (nats) two tokens say nothing about the mode
_NEAR = 0.2  # allowed relative error of the gap, for rounding
_PROBE_SECONDS = 300.0  # a server's first answer may have to wait for its kernels
_INFO_SECONDS = 60.0  # for its first answer the server collects facts about its machine

MEND = (
    "start vLLM on a CPU with --no-enable-chunked-prefill and --max-num-batched-tokens of at "
    "least --max-model-len"
)


class EngineUnavailable(RuntimeError):
    """No server answers, or a server cannot be used; the message says which and why."""


async def check_logprobs(
    client: JsonClient, url: str, model: str, probe_ids: Sequence[int]
) -> None:
    """Ask a server after each of `probe_ids`, until it is clear what its log-probabilities mean.

    Raises EngineUnavailable where they are not those at the sampling temperature.
    """
    where = f"{url}/v1/completions"
    for token_id in probe_ids:
        cold, warm = [
            top_logprobs(
                await client.post(where, probe_body(model, token_id, temperature), _PROBE_SECONDS)
            )
            for temperature in TEMPERATURES
        ]
        mode = mode_of(cold, warm)
        if mode == "processed":
            return
        if mode != "flat":
            raise EngineUnavailable(
                f"{url} returns {mode} values as log-probabilities; training needs those at the "
                "sampling temperature: start vLLM with --logprobs-mode processed_logprobs"
            )


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


async def server_config(client: JsonClient, url: str) -> dict[str, Any]:
    """A server's own configuration. Empty if it does not report it: only a server in development
    mode (VLLM_SERVER_DEV_MODE=1) does."""
    try:
        answer = await client.get(f"{url}/server_info?config_format=json", _INFO_SECONDS)
    except HttpError:
        return {}
    return _part(answer, "vllm_config")


def device_of(config: Mapping[str, Any]) -> str | None:
    """The device that a server's configuration names; None if it names none."""
    found = _part(config, "device_config").get("device")
    return found if isinstance(found, str) else None


def dtype_of(config: Mapping[str, Any]) -> str | None:
    """The name of the torch dtype in which a server keeps its weights; None if it is unknown or
    they are quantized."""
    model = _part(config, "model_config")
    found = model.get("dtype")
    if not isinstance(found, str) or model.get("quantization") is not None:
        return None
    return found.removeprefix("torch.")


def dies_of_chunks(config: Mapping[str, Any]) -> bool:
    """Whether the server runs on a CPU and may split prefills."""
    chunked = _part(config, "scheduler_config").get("enable_chunked_prefill")
    return device_of(config) == "cpu" and bool(chunked)


def _part(of: Any, name: str) -> dict[str, Any]:
    found = of.get(name) if isinstance(of, Mapping) else None
    return found if isinstance(found, dict) else {}
