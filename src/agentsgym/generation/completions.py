"""vLLM's `/v1/completions`: token ids in, token ids and log-probabilities out.

Checked against vLLM 0.31 (`vllm/entrypoints/openai/completion/protocol.py`).
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from agentsgym.types import FinishReason, GenerationRequest

_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class MalformedAnswer(ValueError):
    """A server's answer lacks what we asked for; the message says what."""


def request_seed(seed: int, sampled_before: int) -> int:
    """The seed of one request, 63 bits: blake2b of the session's seed and the tokens it has
    sampled already, so that the session's actions differ in their noise."""
    digest = hashlib.blake2b(f"{seed}/{sampled_before}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def completion_body(
    request: GenerationRequest,
    model: str,
    *,
    max_model_len: int | None,
    stop_token_ids: Sequence[int],
) -> dict[str, Any]:
    """The JSON that asks for one action.

    Every sampling parameter is given, because a server fills in what is missing from the model's
    generation_config. `max_tokens` is cut to what `max_model_len` leaves.
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


def read_completion(answer: Any) -> tuple[tuple[int, ...], tuple[float, ...], FinishReason]:
    """Token ids, log-probabilities (nats) and why it ended. Raises MalformedAnswer."""
    try:
        choice = answer["choices"][0]
        ids = choice["token_ids"]
        logprobs = choice["logprobs"]["token_logprobs"]
        reason = choice["finish_reason"]
    except (KeyError, IndexError, TypeError) as error:
        raise MalformedAnswer(f"the answer has no {error}: {str(answer)[:200]}") from None
    if ids is None:
        raise MalformedAnswer("the answer has no token_ids; vLLM 0.10.2 or later gives them")
    if reason not in _FINISH:
        raise MalformedAnswer(f"the server ended the request with finish_reason {reason!r}")
    if len(logprobs) != len(ids) or not ids:
        raise MalformedAnswer(f"{len(ids)} token ids came with {len(logprobs)} log-probabilities")
    if any(value is None or not math.isfinite(value) for value in logprobs):
        raise MalformedAnswer("a log-probability is not finite")
    return tuple(map(int, ids)), tuple(map(float, logprobs)), _FINISH[reason]
