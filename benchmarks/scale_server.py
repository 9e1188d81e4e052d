"""A server that speaks vLLM's completions API and answers after a drawn latency.

    python scale_server.py TOKENIZER

prints its URL and serves until its standard input ends. It has a process of its own, because its
work is that of a server.
"""

import asyncio
import sys
from typing import Any

import scale_game as game
from aiohttp import web
from scale_engine import answers_of
from scale_env import tokenizer_of


class LatencyServer:
    """The answer to a request and its latency depend on its seed, which our engine makes from the
    session's seed and the tokens sampled before."""

    def __init__(self, tokenizer: Any) -> None:
        self._answers = [ids for _, ids in answers_of(tokenizer)]
        self.app = web.Application(client_max_size=2**26)
        self.app.router.add_get("/health", self._health)
        self.app.router.add_get("/v1/models", self._models)
        self.app.router.add_get("/server_info", self._info)
        self.app.router.add_post("/v1/completions", self._complete)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "scale", "max_model_len": 100_000}]})

    async def _info(self, _: web.Request) -> web.Response:
        scheduler = {"enable_chunked_prefill": False}
        config = {"device_config": {"device": "cpu"}, "scheduler_config": scheduler}
        return web.json_response({"vllm_config": config})

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["logprobs"]:
            return web.json_response(_probe(body["temperature"]))
        draw = game.drawn("request", body["seed"])
        await asyncio.sleep(game.latency(draw))
        ids = self._answers[game.text_number(draw)]
        first = -1.0 - draw % 1000 / 1000
        choice = {
            "token_ids": ids,
            "logprobs": {"token_logprobs": [first - k for k in range(len(ids))]},
            "finish_reason": "stop",
        }
        return web.json_response({"choices": [choice]})


def _probe(temperature: float) -> dict[str, Any]:
    """What an engine asks to find out at which temperature log-probabilities are."""
    top = {"token_id:5": -1.0 / temperature, "token_id:6": -3.0 / temperature}
    return {"choices": [{"logprobs": {"top_logprobs": [top]}}]}


async def main() -> None:
    runner = web.AppRunner(
        LatencyServer(tokenizer_of(sys.argv[1])).app, access_log=None, shutdown_timeout=0.0
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
