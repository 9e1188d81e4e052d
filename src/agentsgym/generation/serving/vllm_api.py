"""The part of vLLM's HTTP interface that `VLLMEngine` uses, over an engine of this process.

Token ids go in, token ids and log-probabilities come out, those at the sampling temperature
(`processed_logprobs`). The weights are replaced as in vLLM: an adapter has a name of its own in
each version, and all weights are loaded from a directory while the server is paused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agentsgym.generation.serving.app import json_response, read_body, sent_key, unknown_model
from agentsgym.generation.serving.calls import CallRefused
from agentsgym.generation.serving.engine import EngineBackend, new_seed
from agentsgym.generation.serving.wire import Body, JsonObject
from agentsgym.tokens.grammars import Grammar
from agentsgym.types import GenerationRequest, GenerationResult, SamplingParams
from agentsgym.types.choices import Answers, Choices

T = TypeVar("T")
_Answer = Callable[[Request], Awaitable[Any]]
_Id = Annotated[int, Field(ge=0, lt=2**31)]
_Path = Annotated[str, Field(max_length=4096)]
_Texts = Annotated[list[str], BeforeValidator(lambda value: value or [])]
# With these off, log-probabilities are those of the distribution, or of what top-p and top-k leave.
_OFF: dict[str, Any] = {
    **{"min_p": 0, "repetition_penalty": 1, "presence_penalty": 0},
    **{"frequency_penalty": 0, "logit_bias": {}, "n": 1, "echo": False, "stream": False},
}
_CLIENT_WENT = 499  # nginx's status for it


class CompletionBody(Body):
    """The body of /v1/completions; with `allowed_answers` the answer is one of them, with a
    `grammar`, in llguidance's form, one that it allows."""

    model: str
    prompt: list[_Id] = Field(min_length=1)
    max_tokens: int = Field(default=16, ge=1)
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=-1, lt=2**31)
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: _Texts = Field(default_factory=list)
    stop_token_ids: list[_Id] | None = None
    user: str = Field(default="", max_length=1000)
    allowed_answers: list[list[_Id]] | None = None
    grammar: str | None = Field(None, max_length=2**20)

    @classmethod
    def _check(cls, given: JsonObject) -> None:
        for key, off in _OFF.items():
            if given.get(key, off) != off:
                raise ValueError(f"{key} is not offered here; leave it out")


class AdapterBody(Body):
    """The body of /v1/load_lora_adapter."""

    lora_name: str = Field(min_length=1, max_length=1000)
    lora_path: _Path


class ReloadArguments(Body):
    """Where weights are."""

    weights_path: _Path


class RpcBody(Body):
    """The body of /collective_rpc."""

    method: Literal["reload_weights"]
    kwargs: ReloadArguments


class VersionBody(Body):
    """The body of /update_weight_version."""

    new_version: str = Field(max_length=1000)


class VLLMApi:
    """The endpoints, for clients with the key of `backend`, which has the engine. `weights` are
    those that it samples from (`agentsgym.runs.serve_model.ModelWeights`)."""

    def __init__(self, backend: EngineBackend, weights: Any) -> None:
        self._backend = backend
        self._batcher = backend.batcher
        self._facts = backend.facts
        self._weights = weights
        self._version = "default"

    def routes(self) -> list[BaseRoute]:
        """The routes of an application."""
        answers = [
            ("GET", "/v1/models", self._models),
            ("GET", "/weight_info", self._weight_info),
            ("POST", "/v1/completions", self._complete),
            ("POST", "/v1/load_lora_adapter", self._load_adapter),
            ("POST", "/pause", self._pause),
            ("POST", "/resume", self._resume),
            ("POST", "/collective_rpc", self._reload),
            ("POST", "/reset_prefix_cache", self._reset),
            ("POST", "/update_weight_version", self._set_version),
        ]
        keyed = (
            Route(path, self._with_key(answer), methods=[method])
            for method, path, answer in answers
        )
        return [Route("/health", self._health), *keyed]

    def _with_key(self, answer: _Answer) -> Callable[[Request], Awaitable[Response]]:
        async def checked(request: Request) -> Response:
            self._backend.check(sent_key(request))
            return json_response(await answer(request))

        return checked

    async def _health(self, request: Request) -> Response:
        self._batcher.check()
        return json_response({})

    async def _models(self, request: Request) -> Any:
        facts = self._facts
        shared = {
            **{"object": "model", "created": 0, "owned_by": "agentsgym"},
            "max_model_len": facts.max_model_len,
            "records_supports": True,
        }
        base = {"id": facts.name, "root": facts.root, "parent": None, **shared}
        adapters = [
            {"id": name, "root": name, "parent": facts.name, **shared}
            for name in self._weights.adapters()
        ]
        return {"object": "list", "data": [base, *adapters]}

    async def _complete(self, request: Request) -> Any:
        body = CompletionBody.read(await read_body(request))
        known = [self._facts.name, *self._weights.adapters()]
        if body.model not in known:
            raise unknown_model(body.model, known)
        result = await _while_connected(
            request, self._backend.sample(self._request(body), body.model)
        )
        return _completion(body, result)

    def _request(self, body: CompletionBody) -> GenerationRequest:
        try:
            sampling = SamplingParams(
                self._facts.most(len(body.prompt), body.max_tokens),
                body.temperature,
                body.top_p,
                max(body.top_k, 0),
                stop=tuple(body.stop),
                stop_token_ids=tuple(body.stop_token_ids or ()),
            )
            allowed = body.allowed_answers
            choices: Answers | None = None if allowed is None else Choices.of(allowed)
            if body.grammar is not None:
                choices = Grammar(body.grammar)
        except ValueError as error:
            raise CallRefused(str(error)) from None
        seed = new_seed() if body.seed is None else body.seed
        return GenerationRequest(body.user, body.prompt, sampling, seed, choices=choices)

    # -- weights ----------------------------------------------------------------------------------

    async def _load_adapter(self, request: Request) -> Any:
        body = AdapterBody.read(await read_body(request))
        if body.lora_name in (self._facts.name, *self._weights.adapters()):
            raise CallRefused(f"there is a model {body.lora_name[:200]!r} already")
        await _valid(asyncio.to_thread(self._weights.add, body.lora_name, Path(body.lora_path)))
        return {"status": "loaded"}

    async def _pause(self, request: Request) -> Any:
        if request.query_params.get("mode", "wait") != "wait":
            raise CallRefused("the mode of a pause is wait", param="mode")
        await self._batcher.pause()
        return {"status": "paused"}

    async def _resume(self, request: Request) -> Any:
        self._batcher.resume()
        return {"status": "resumed"}

    async def _reload(self, request: Request) -> Any:
        folder = Path(RpcBody.read(await read_body(request)).kwargs.weights_path)
        await _valid(self._batcher.between(lambda: self._weights.reload(folder)))
        return {"results": [None]}

    async def _reset(self, request: Request) -> Any:
        return {}  # a reload has forgotten what was read before

    async def _set_version(self, request: Request) -> Any:
        self._version = VersionBody.read(await read_body(request)).new_version
        return {"success": True}

    async def _weight_info(self, request: Request) -> Any:
        return {"weight_version": self._version}


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns, which is cancelled if the client goes."""
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())  # the body is read, so it tells nothing else
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise CallRefused("the client went", _CLIENT_WENT)
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


async def _valid(work: Awaitable[T]) -> T:
    """What `work` returns; a ValueError, or a file that can't be read, refuses the request."""
    try:
        return await work
    except (ValueError, OSError) as error:
        raise CallRefused(str(error)) from None


def _completion(body: CompletionBody, result: GenerationResult) -> Any:
    ids, supports = result.token_ids or (), result.supports
    names = [f"token_id:{token}" for token in ids]
    choice = {
        "index": 0,
        "text": result.text,
        "token_ids": ids,
        "logprobs": {"tokens": names, "token_logprobs": result.logprobs or ()},
        "supports": {name: getattr(supports, name).tolist() for name in ("at", "ends", "ids")},
        "finish_reason": result.finish_reason,
    }
    read, written = len(body.prompt), len(ids)
    usage = {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }
    head = {"id": "cmpl", "object": "text_completion", "created": 0, "model": body.model}
    return {**head, "choices": [choice], "usage": usage}
