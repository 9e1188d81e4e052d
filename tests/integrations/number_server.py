"""A server that speaks OpenEnv's protocol, without OpenEnv: higher or lower, with every fault."""

import json
import random

from aiohttp import web

from local_server import LocalServer


class NumberServer(LocalServer):
    """Play on `url` inside a `with` block.

    Args:
        places: sessions at once.
        seeded: whether `reset` heeds the seed.
        fault: what happens at the second action: "silent", "vanish", "error", "garbage", …
        drops: how many connections it ends at their `reset`.
        redirect: where `/ws` sends its clients.
    """

    def __init__(self, places=100, seeded=True, fault=None, drops=0, redirect=None):
        self.places, self.seeded, self.fault, self.drops = places, seeded, fault, drops
        self.redirect = redirect
        self.live = self.peak = self.refused = self.contacts = 0
        self.headers = []
        self.resets = []
        super().__init__()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def add_routes(self, app):
        app.router.add_get("/ws", self._session)

    async def _session(self, request):
        self.contacts += 1
        self.headers.append(request.headers)
        if self.redirect is not None:
            raise web.HTTPFound(self.redirect)
        line = web.WebSocketResponse()
        await line.prepare(request)
        if self.live >= self.places:
            self.refused += 1
            await line.send_json(error("CAPACITY_REACHED", f"{self.live} of {self.places}"))
            await line.close()
            return line
        self.live += 1
        self.peak = max(self.peak, self.live)
        try:
            await self._play(line)
        finally:
            self.live -= 1
        return line

    async def _play(self, line):
        number, turn = 0, 0
        async for message in line:
            data = json.loads(message.data)
            if data["type"] == "reset" and self.drops > 0:
                self.drops -= 1
                line._req.transport.abort()
                continue
            if data["type"] == "reset":
                self.resets.append(data["data"])
                seed = data["data"].get("seed", data["data"].get("index"))
                number = random.Random(seed if self.seeded else None).randrange(10**9)
                turn = 0
                await line.send_json(observation(f"A number, {number % 1000} or so."))
                continue
            turn += 1
            if turn == 2 and self.fault is not None:
                await self._fail(line)
                continue
            guess = data["data"].get("guess")
            if not (isinstance(guess, str) and guess.isdigit()):
                problem = error("VALIDATION_ERROR", "Invalid message")
                problem["data"]["errors"] = [{"msg": "Input should be a whole number"}]
                await line.send_json(problem)
                continue
            hint = "right" if int(guess) == number % 1000 else "higher"
            done = hint == "right"
            await line.send_json(observation(hint, 1.0 if done else 0.125, done))

    async def _fail(self, line):
        if self.fault == "vanish":
            line._req.transport.abort()
        elif self.fault == "error":
            await line.send_json(error("EXECUTION_ERROR", "it broke"))
        elif self.fault != "silent":
            await line.send_str(self.fault)


def observation(hint, reward=None, done=False):
    data = {"observation": {"hint": hint, "metadata": {}}, "reward": reward, "done": done}
    return {"type": "observation", "data": data}


def error(code, message):
    return {"type": "error", "data": {"code": code, "message": message}}
