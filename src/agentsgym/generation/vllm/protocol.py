"""vLLM's HTTP API: requests and answers of `/v1/completions`, and what a server must be like.

Token ids go in, token ids and log-probabilities come out. Checked against vLLM 0.31
(`vllm/entrypoints/openai/completion/protocol.py`).

vLLM's default, `--logprobs-mode raw_logprobs`, returns log-probabilities at temperature 1 for any
sampling temperature; importance ratios need `processed_logprobs`. A server only reports its mode in
development mode, so we request the same distribution at two temperatures and compare: for tokens a
and b, logp(a) − logp(b) halves when the temperature doubles, if the mode is `processed_logprobs`.

vLLM 0.31 rewinds the random generator of a request whose prefill was split (`set_offset` in its
`gpu_model_runner`). A CPU's generator cannot be rewound ("CPU Generator does not use offset"), so
the server's engine crashes. It happens with requests that have a seed, and all of ours have one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from agentsgym.generation.http import HttpError, JsonClient, Refused, printable
from agentsgym.generation.remote import request_seed
from agentsgym.types import FinishReason, GenerationRequest

_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
_ROUNDING = 1e-2  # nats by which half precision may raise a log-probability above 0
_LEAST = -1e4  # nats; anything below counts as impossible, and an integer may not fit a float

_UNTRUNCATED = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "watermarking": False,
    "n": 1,
}
_TEMPERATURES = (1.0, 2.0)
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


class MalformedAnswer(ValueError):
    """A server's answer lacks a required part; the message says which."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


def refusal(request: GenerationRequest, max_model_len: int | None = None) -> str | None:
    """Why a request can never be served by vLLM, or None."""
    if not request.token_ids:
        return "the context is empty"
    if max_model_len is not None and len(request.token_ids) >= max_model_len:
        return (
            f"the context of {len(request.token_ids)} tokens leaves no room in the servers' "
            f"max_model_len of {max_model_len}"
        )
    if request.sampling.truncates:
        return (
            "vLLM gives the log-probabilities of what top_p and top_k leave, not of the whole "
            "distribution; leave them off"
        )
    return None


def completion_body(
    request: GenerationRequest,
    model: str,
    *,
    max_model_len: int | None,
    stop_token_ids: Sequence[int],
) -> dict[str, Any]:
    """The request body for one action.

    Every sampling parameter is set, because a server takes missing ones from the model's
    generation_config. `max_tokens` is cut to the room that `max_model_len` leaves.
    """
    sampling = request.sampling
    context = list(request.token_ids)
    room = sampling.max_tokens if max_model_len is None else max_model_len - len(context)
    return {
        "model": model,
        "prompt": context,
        "max_tokens": min(sampling.max_tokens, room),
        "temperature": sampling.temperature,
        **_UNTRUNCATED,
        "seed": request_seed(request.seed, request.sampled_before),
        "stop": list(sampling.stop),
        "stop_token_ids": list(stop_token_ids),
        "logprobs": 0,
        "return_token_ids": True,
        "add_special_tokens": False,
        "stream": False,
    }


def read_completion(
    answer: Any, *, vocab_size: int, max_tokens: int
) -> tuple[tuple[int, ...], tuple[float, ...], FinishReason]:
    """Token ids, log-probabilities (nats) and the finish reason.

    Raises MalformedAnswer for any value that training could not use: ids that are not integers in
    [0, `vocab_size`), more than `max_tokens` of them, log-probabilities that are not finite
    numbers of at most 0.
    """
    try:
        choice = answer["choices"][0]
        ids = choice["token_ids"]
        logprobs = choice["logprobs"]["token_logprobs"]
        reason = choice["finish_reason"]
    except (KeyError, IndexError, TypeError) as error:
        raise MalformedAnswer(f"the answer has no {error}: {str(answer)[:200]}") from None
    if ids is None:
        raise MalformedAnswer("the answer has no token_ids; vLLM 0.10.2 or later gives them")
    if not isinstance(reason, str) or reason not in _FINISH:
        raise MalformedAnswer(f"the server ended the request with finish_reason {reason!r}")
    if not isinstance(ids, list) or not isinstance(logprobs, list):
        raise MalformedAnswer("token_ids and token_logprobs must be lists")
    if len(logprobs) != len(ids) or not ids:
        raise MalformedAnswer(f"{len(ids)} token ids came with {len(logprobs)} log-probabilities")
    if len(ids) > max_tokens:
        raise MalformedAnswer(f"{len(ids)} tokens came, {max_tokens} were asked for")
    _check_ids(ids, vocab_size)
    return tuple(ids), tuple(map(_logprob, logprobs)), _FINISH[reason]


def _check_ids(ids: list[Any], vocab_size: int) -> None:
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise MalformedAnswer(
                f"token id {token_id!r} is no integer in [0, {vocab_size}), the model's vocabulary"
            )


def _logprob(value: Any) -> float:
    """A log-probability as a float; a value that rounding raised above 0 becomes 0."""
    if type(value) not in (int, float) or not -math.inf < value < math.inf:
        raise MalformedAnswer(f"log-probability {str(value)[:40]!r} is not finite")
    if value > _ROUNDING:
        raise MalformedAnswer(f"log-probability {str(value)[:40]} is positive")
    return min(float(value), 0.0) if value > _LEAST else _LEAST


async def check_logprobs(
    client: JsonClient, url: str, model: str, probe_ids: Sequence[int]
) -> None:
    """Ask a server after each of `probe_ids`, until it is clear what its log-probabilities mean.

    Raises EngineUnavailable where they are not those at the sampling temperature.
    """
    for token_id in probe_ids:
        body = {
            "model": model,
            "prompt": [token_id],
            **_UNTRUNCATED,
            "max_tokens": 1,
            "seed": 0,
            "logprobs": _TOP,
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
        }
        cold, warm = [
            top_logprobs(
                await client.post(
                    f"{url}/v1/completions", body | {"temperature": temperature}, _PROBE_SECONDS
                )
            )
            for temperature in _TEMPERATURES
        ]
        verdict = are_processed(cold, warm)
        if verdict:
            return
        if verdict is False:
            raise EngineUnavailable(
                f"{url} returns other values than the log-probabilities at the sampling "
                "temperature: start vLLM with --logprobs-mode processed_logprobs"
            )


def top_logprobs(answer: Any) -> dict[str, float]:
    """The most likely tokens and their values in a probe's answer; empty if none."""
    try:
        top = answer["choices"][0]["logprobs"]["top_logprobs"][0]
        return {token: float(value) for token, value in top.items()}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
        return {}


def are_processed(cold: Mapping[str, float], warm: Mapping[str, float]) -> bool | None:
    """Whether values at the temperatures 1 (`cold`) and 2 (`warm`) are log-probabilities at these.

    None if the distribution is too even to decide; then it makes no difference either.
    """
    if sum(math.exp(min(value, 1.0)) for value in cold.values()) > 1.01:
        return False  # logits
    common = sorted(set(cold) & set(warm), key=lambda token: cold[token])
    if len(common) < 2:
        return None
    before = cold[common[-1]] - cold[common[0]]
    after = warm[common[-1]] - warm[common[0]]
    return None if before < _FLAT else abs(after - before / 2) < _NEAR * before


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
    device = _part(config, "device_config").get("device")
    return device if isinstance(device, str) else None


def dtype_of(config: Mapping[str, Any]) -> str | None:
    """The name of the torch dtype in which a server keeps its weights; None if it is unknown or
    they are quantized."""
    model = _part(config, "model_config")
    dtype = model.get("dtype")
    if not isinstance(dtype, str) or model.get("quantization") is not None:
        return None
    return dtype.removeprefix("torch.")


def dies_of_chunks(config: Mapping[str, Any]) -> bool:
    """Whether the server runs on a CPU and may split prefills."""
    chunked = _part(config, "scheduler_config").get("enable_chunked_prefill")
    return device_of(config) == "cpu" and bool(chunked)


def _part(of: Any, name: str) -> dict[str, Any]:
    part = of.get(name) if isinstance(of, Mapping) else None
    return part if isinstance(part, dict) else {}


async def served_models(client: JsonClient, url: str, timeout: float = 30.0) -> dict[str, Any]:
    """The models that `/v1/models` lists, by name. Raises Unreachable or Refused."""
    answer = await client.get(f"{url}/v1/models", timeout)
    entries = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(entries, list) or not all(_is_model(entry) for entry in entries):
        raise Refused(url, f"/v1/models is no list of models: {str(answer)[:200]}")
    return {entry["id"]: entry for entry in entries}


def _is_model(entry: Any) -> bool:
    """Whether an entry of /v1/models has a name, and a valid length if it has one."""
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
        return False
    length = entry.get("max_model_len")
    return length is None or (type(length) is int and length > 0)
