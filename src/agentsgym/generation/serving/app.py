"""The APIs as an application: a request becomes a call of the backend, its answer a response.

The client's key is its bearer key (or `x-api-key`), or stands in the path: `/sessions/KEY/v1/…`,
where it counts more, because clients send a bearer key in any case. A fault in a request gets a
status and a sentence and touches nothing else.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial

from pydantic import Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agentsgym.generation.serving.calls import Backend, CallRefused, Exchanges, beside_the_loop
from agentsgym.generation.serving.chat import ChatBody
from agentsgym.generation.serving.messages import MessagesBody
from agentsgym.generation.serving.responses import ResponsesBody
from agentsgym.generation.serving.wire import Body, CallBody, JsonObject, Reply, to_json
from agentsgym.types import ModelCall
from agentsgym.types.foreign import LARGEST_REWARD

logger = logging.getLogger(__name__)

_LARGEST_BODY = 32 * 2**20  # bytes
_NOT_KEPT = {"cache-control": "no-cache"}

_APIS: dict[str, type[CallBody]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
}


def create_app(
    backend: Backend, exchanges: Exchanges | None = None, *, routes: Sequence[BaseRoute] = ()
) -> Starlette:
    """The application in front of a backend.

    Args:
        backend: what answers the calls; its coroutines run in the event loop of the server, and a
            client that disconnects does not cancel them.
        exchanges: keeps answers for retries; who ends sessions calls its `forget`.
        routes: what the application has beside these APIs, or in their place.
    """
    front = _Front(backend, exchanges or Exchanges())
    apis: list[BaseRoute] = [
        Route(path, partial(front.call, form), methods=["POST"]) for path, form in _APIS.items()
    ]
    apis.append(Route("/v1/models", front.models))
    reward = Route("/reward", front.reward, methods=["POST"])
    return Starlette(
        routes=[
            *routes,
            *apis,
            Route("/health", _health),
            Mount("/sessions/{session}", routes=[*apis, reward]),
        ],
        exception_handlers={CallRefused: _refused, HTTPException: _no_such_route},
        middleware=[Middleware(_Faults)],
    )


def _read(form: type[CallBody], raw: bytes) -> tuple[CallBody, ModelCall]:
    body = form.read(raw)
    return body, body.call()


class RewardBody(Body):
    """The body of a request that rewards a step."""

    reward: float = Field(ge=-LARGEST_REWARD, le=LARGEST_REWARD)


class _Front:
    """The endpoints."""

    def __init__(self, backend: Backend, exchanges: Exchanges) -> None:
        self._backend = backend
        self._exchanges = exchanges

    async def call(self, form: type[CallBody], request: Request) -> Response:
        """Answer a call of the model."""
        key = request.path_params.get("session") or sent_key(request)
        models = await self._backend.models(key)
        raw = await read_body(request)
        body, call = await beside_the_loop(len(raw), partial(_read, form, raw))
        if models and body.model not in models:
            raise unknown_model(body.model, models)
        exchange = self._exchanges.begin(
            key, request.headers, raw, lambda: self._backend.answer(key, call)
        )
        try:
            answer = await asyncio.shield(exchange.task)
        except asyncio.CancelledError as error:  # only at the server's end; uvicorn would log it
            raise CallRefused("the server ended", 503, "server_error") from error
        reply = Reply(exchange.id, exchange.created, body.model, answer)
        if body.stream:
            return Response(b"".join(body.events(reply)), 200, _NOT_KEPT, "text/event-stream")
        return json_response(body.answer(reply))

    async def models(self, request: Request) -> Response:
        """The models that a client may name."""
        names = await self._backend.models(request.path_params.get("session") or sent_key(request))
        models = [
            {"id": name, "object": "model", "created": 0, "owned_by": "agentsgym"} for name in names
        ]
        return json_response({"object": "list", "data": models})

    async def reward(self, request: Request) -> Response:
        """Reward a session's latest step."""
        session = request.path_params["session"]
        body = RewardBody.read(await read_body(request))
        await self._backend.reward(sent_key(request) or session, session, body.reward)
        return json_response({"reward": body.reward})


async def _health(request: Request) -> Response:
    return json_response({"status": "ok"})


async def read_body(request: Request) -> bytes:
    """The body of a request. Raises CallRefused."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > _LARGEST_BODY:
                raise CallRefused(f"a body has at most {_LARGEST_BODY >> 20} MiB", status=413)
            parts.append(part)
    except ClientDisconnect:
        raise CallRefused("the client went before its request was whole") from None
    return b"".join(parts)


def sent_key(request: Request) -> str:
    """The key that a client sends, "" if it sends none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return request.headers.get("x-api-key", "")


def unknown_model(model: str, models: Iterable[str]) -> CallRefused:
    """The refusal of a call for a model that is not served."""
    known = ", ".join(sorted(models))
    return CallRefused(
        f"there is no model {model[:200]!r}; there is {known}", 404, code="model_not_found"
    )


def json_response(content: JsonObject, status: int = 200) -> Response:
    """A response with this JSON."""
    return Response(to_json(content), status, _NOT_KEPT, "application/json")


# A coroutine, as Starlette would hand a function to a thread, also while the server ends.
async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, CallRefused)
    form = MessagesBody if "/v1/messages" in request.url.path else CallBody
    return json_response(form.error(error), error.status)


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path[:200]}"
    return await _refused(request, CallRefused(f"{where}: {error.detail}", error.status_code))


class _Faults:
    """Answers a request that met a fault. (Starlette's own handler raises the fault again, and
    uvicorn then closes the connection, under the client's next request.)"""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception:
            logger.exception("a request failed")
            failed = CallRefused("the server failed", 500, "server_error")
            response = await _refused(Request(scope), failed)
            await response(scope, receive, send)
