"""vLLM's HTTP API: requests and answers of `/v1/completions`, and what a server must be like.

Token ids go in, token ids and log-probabilities come out. Checked against vLLM 0.31
(`vllm/entrypoints/openai/completion/protocol.py`).

vLLM's default, `--logprobs-mode raw_logprobs`, returns log-probabilities at temperature 1 for any
sampling temperature; importance ratios need `processed_logprobs`. A server only reports its mode in
development mode, so we look at a token that was sampled with top_k=1: in that mode it has the
log-probability 0, as the only one that top_k leaves (unless two are equally likely).
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from agentsgym.generation.http import JsonClient, Refused, printable
from agentsgym.generation.models import EngineUnavailable
from agentsgym.types import FinishReason, GenerationRequest, SamplingParams, session_seed
from agentsgym.types.requests import context_overflow
from agentsgym.types.supports import Supports

_ROUNDING = 1e-2  # nats by which half precision may raise a log-probability above 0
_LEAST = -1e4  # nats; anything below counts as impossible

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
_ZERO = 1e-3  # nats by which rounding may move the log-probability of the only possible token
_UNLIKELY = -14.0  # nats: one in a million
MOST_ALLOWED = 1024
"""Ids that vLLM can choose among; a server that is sent more ends."""
_PROBE_TOKENS = 16
_LIST_SECONDS = 30.0
_PROBE_SECONDS = 300.0  # a server's first answer may have to wait for its kernels


class MalformedAnswer(ValueError):
    """A server's answer lacks a required part; the message says which."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


def refusal(
    request: GenerationRequest, max_model_len: int | None = None, *, records_supports: bool = False
) -> str | None:
    """Why a request can never be served by vLLM, or by servers that `records_supports`, or None."""
    if not request.token_ids:
        return "the context is empty"
    if max_model_len is not None and len(request.token_ids) >= max_model_len:
        return context_overflow(len(request.token_ids), max_model_len)
    if request.choices is not None and request.choices.whole:
        return "servers do not choose among whole answers"
    if records_supports:
        return None
    if request.sampling.truncates:
        return (
            "vLLM does not say which tokens top_p and top_k left, among which its "
            "log-probabilities are; leave them off"
        )
    if request.choices is not None and not request.choices.longest:
        return (
            "vLLM does not say which tokens a grammar left; it chooses among listed answers alone"
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
    generation_config. `max_tokens` is cut to what `max_model_len` leaves.
    """
    sampling, choices = request.sampling, request.choices
    more: dict[str, Any] = {}
    if sampling.truncates:
        more |= {"top_p": sampling.top_p, "top_k": sampling.top_k}
    if choices is not None:  # `serve-model` alone knows it
        more |= choices.body
    context = list(request.token_ids)
    most = sampling.max_tokens if max_model_len is None else max_model_len - len(context)
    return {
        "model": model,
        "prompt": context,
        "max_tokens": min(sampling.max_tokens, most),
        "temperature": sampling.temperature,
        **_UNTRUNCATED,
        "seed": session_seed(request.seed, request.sampled_before),
        "stop": sampling.stop,
        "stop_token_ids": stop_token_ids,
        "logprobs": 0,
        "return_token_ids": True,
        "add_special_tokens": False,
        "stream": False,
        "user": request.session_id,  # `serve-model` finds the session's cache by it
        **more,
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
        choice = _Completion.model_validate(answer).choices[0]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise MalformedAnswer(
            f"the answer cannot be used (vLLM 0.10.2 or later is needed): {where}: {first['msg']}, "
            f"not {str(first['input'])[:200]}"
        ) from None
    ids, logprobs = choice.token_ids, choice.logprobs.token_logprobs
    if len(logprobs) != len(ids):
        raise MalformedAnswer(f"{len(ids)} token ids came with {len(logprobs)} log-probabilities")
    if len(ids) > max_tokens:
        raise MalformedAnswer(f"{len(ids)} tokens came, {max_tokens} were requested")
    if max(ids) >= vocab_size:
        raise MalformedAnswer(
            f"token id {max(ids)} is not in [0, {vocab_size}), the model's vocabulary"
        )
    if max(logprobs) > 0 or min(logprobs) < _LEAST:  # rounding may raise a value above 0
        logprobs = [min(max(value, _LEAST), 0.0) for value in logprobs]
    return tuple(ids), tuple(logprobs), choice.finish_reason


def read_supports(answer: Any, token_ids: Sequence[int]) -> Supports:
    """What an answer's tokens were chosen from. Raises MalformedAnswer if it does not say it."""
    try:
        said = _Supports.model_validate(answer["choices"][0].get("supports") or {})
        supports = Supports(*(np.array(own, np.int32) for own in (said.at, said.ends, said.ids)))
        fits = supports.fits(np.array(token_ids))
    except (ValueError, OverflowError):
        fits = False
    if not fits:
        raise MalformedAnswer("the answer does not say what its tokens were chosen from")
    return supports


def read_prompt_logprobs(answer: Any, token_ids: Sequence[int]) -> tuple[float, ...]:
    """The log-probabilities (nats) of the context's tokens, 0 for the first.

    Raises MalformedAnswer unless each of the others has a finite number.
    """
    try:
        _, *others = answer["choices"][0]["prompt_logprobs"]
        values = [
            float(entry[str(token)]["logprob"])
            for entry, token in zip(others, token_ids[1:], strict=True)
        ]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        values = [math.nan]
    if not all(map(math.isfinite, values)):
        raise MalformedAnswer(
            "the answer has no prompt_logprobs of the tokens that were sent, as vLLM gives them: "
            f"{str(answer)[:200]}"
        )
    return (0.0, *(min(max(value, _LEAST), 0.0) for value in values))


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)


class _Logprobs(_Answer):
    token_logprobs: list[Annotated[float, Field(le=_ROUNDING, allow_inf_nan=False)]]


class _Supports(_Answer):
    at: list[int] = []
    ends: list[int] = []
    ids: list[int] = []


class _Choice(_Answer):
    token_ids: list[NonNegativeInt] = Field(min_length=1)
    logprobs: _Logprobs
    finish_reason: Literal["stop", "length"]


class _Completion(_Answer):
    choices: list[_Choice] = Field(min_length=1)


async def check_sampling(
    client: JsonClient, url: str, model: str, probe_ids: Sequence[int]
) -> None:
    """Ask a server after each of `probe_ids`, until it is clear what its log-probabilities are, and
    sample with two seeds. Raises EngineUnavailable where they are not those at the sampling
    temperature, or if both answers are equal and unlikely: all rollouts of a task would begin
    alike."""

    async def ask(token_id: int, sampling: SamplingParams, seed: int, **other: Any) -> Any:
        request = GenerationRequest("probe", [token_id], sampling, seed)
        body = completion_body(request, model, max_model_len=None, stop_token_ids=()) | other
        return await client.post(f"{url}/v1/completions", body, _PROBE_SECONDS)

    for token_id in probe_ids:
        answer = await ask(token_id, SamplingParams(max_tokens=1), 0, top_k=1)
        try:
            value = float(answer["choices"][0]["logprobs"]["token_logprobs"][0])
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            value = math.nan
        if abs(value) < _ZERO:
            break
    else:
        raise EngineUnavailable(
            f"{url} returns other values than the log-probabilities at the sampling temperature: "
            "start vLLM with --logprobs-mode processed_logprobs"
        )
    sampling = SamplingParams(_PROBE_TOKENS, temperature=2.0)
    answers = [await ask(probe_ids[0], sampling, seed) for seed in (1, 2)]
    try:
        bounds = {"vocab_size": 2**31, "max_tokens": _PROBE_TOKENS}
        (first, logprobs, _), (second, _, _) = (read_completion(a, **bounds) for a in answers)
    except MalformedAnswer as error:
        raise EngineUnavailable(f"{url}: {error}") from None
    if first == second and sum(logprobs) < _UNLIKELY:
        raise EngineUnavailable(
            f"{url} answers two requests with different seeds alike; it must sample each of them "
            "anew, with its seed"
        )


async def served_models(client: JsonClient, url: str) -> dict[str, Any]:
    """The models that `/v1/models` lists, by name. Raises Unreachable or Refused."""
    answer = await client.get(f"{url}/v1/models", _LIST_SECONDS)
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
