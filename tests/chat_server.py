"""A real HTTP server on loopback with an OpenAI-compatible chat endpoint that fails on demand."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from local_server import LocalServer


class ChatServer(LocalServer):
    """`say(messages)` gives the answer; `fault(number)` says what goes wrong with the n-th request:
    an HTTP status, "cut", "stall", "page" (a proxy's), or None. It lists no models."""

    def __init__(
        self,
        say: Callable[[list[dict]], str] = lambda messages: messages[-1]["content"].upper(),
        fault: Callable[[int], Any] = lambda number: None,
        key: str | None = None,
        delay: float = 0.0,
    ) -> None:
        self.say = say
        self.fault = fault
        self.key = key
        self.delay = delay
        self.bodies: list[dict] = []
        self.most_at_once = 0
        self._now = 0
        super().__init__()

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/chat/completions", self._chat)

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            return await self._answer(request, body, self.fault(len(self.bodies)))
        finally:
            self._now -= 1

    async def _answer(self, request: web.Request, body: dict, fault: Any) -> web.Response:
        await asyncio.sleep(self.delay)
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "Incorrect API key"}}, status=401)
        if isinstance(fault, int):
            headers = {"Retry-After": "0.05"} if fault == 429 else {}
            return web.json_response({"error": {"message": "no"}}, status=fault, headers=headers)
        if fault == "cut":
            request.transport.abort()
        if fault == "stall":
            await asyncio.sleep(30)
        if fault == "page":
            return web.Response(text="<html>maintenance</html>")
        words = self.say(body["messages"])
        message = {"role": "assistant", "content": words}
        count = {"prompt_tokens": 100, "completion_tokens": len(words)}
        return web.json_response(
            {
                "id": str(len(self.bodies)),
                "object": "chat.completion",
                "created": 1,
                "model": body.get("model", ""),
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {**count, "total_tokens": sum(count.values())},
            }
        )
