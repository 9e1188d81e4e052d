"""vLLM's `/v1/completions`: token ids in, token ids and log-probabilities out.

Checked against vLLM 0.31 (`vllm/entrypoints/openai/completion/protocol.py`).
"""

import math
from collections.abc import Sequence
from typing import Any

from agentsgym.generation.remote import request_seed
from agentsgym.types import FinishReason, GenerationRequest
from agentsgym.types.text import mask_secrets, visible

_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
_ROUNDING = 1e-2  # nats by which half precision may raise a log-probability above 0
_LEAST = -1e4  # nats; anything below counts as impossible, and an integer may not fit a float


class MalformedAnswer(ValueError):
    """A server's answer lacks a required part; the message says which."""

    def __init__(self, reason: str) -> None:
        super().__init__(visible(mask_secrets(reason)))


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
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "watermarking": False,
        "n": 1,
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
