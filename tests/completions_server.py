"""A real HTTP server on loopback that speaks vLLM's completions API around an embedded engine.

It can be told to stall, to answer with errors, to cut connections, to die and to come back, so that
tests of engines over HTTP break real connections. Equal (context, seed) give equal answers, however
often they are asked. With `follow` it loads the weights that it is sent, as vLLM does.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from aiohttp import web

from agentsgym.generation.serving.batcher import Batcher
from agentsgym.types import GenerationRequest, SamplingParams
from agentsgym.types.choices import Choices
from local_server import LocalServer

Fault = Literal["error", "busy", "cut", "stall", "garbage"] | None


class CompletionsServer(LocalServer):
    """`fault(number)` says what goes wrong with the server's n-th completion; None: nothing.

    `load_seconds` is how long it takes to load full weights, and `held` what it had to load while
    requests were open. `raw` makes it answer as vLLM does by default, with log-probabilities at
    temperature 1; `runtime_lora` and `dev_mode` switch the endpoints on that take weights. With a
    `key` it answers under /v1 only to those who send it.
    `length` is its model's context. With `one_seed` it ignores the seeds
    that it is sent, and without `heeds_allowed` the ids that it may choose from.
    """

    def __init__(
        self,
        engine: Any,
        fault: Callable[[int], Fault] = lambda number: None,
        *,
        raw: bool = False,
        runtime_lora: bool = True,
        dev_mode: bool = True,
        stall_seconds: float = 60.0,
        load_seconds: float = 0.0,
        follow: bool = False,
        key: str | None = None,
        port: int = 0,
        length: int = 512,
        one_seed: bool = False,
        heeds_allowed: bool = True,
    ) -> None:
        self.one_seed = one_seed
        self.heeds_allowed = heeds_allowed
        self.seeds: list[int | None] = []
        self._length = length
        self.fault = fault
        self.raw = raw
        self.runtime_lora = runtime_lora
        self.dev_mode = dev_mode
        self.stall_seconds = stall_seconds
        self.load_seconds = load_seconds
        self.completions = self.open = 0
        self.served: list[tuple[str, tuple[int, ...]]] = []
        self.loaded: list[str] = []
        self.held: list[str] = []
        self._engine = engine
        self.tokenizer = engine.tokenizer
        self._resumed = asyncio.Event()
        self._resumed.set()
        self.version = "default"
        self._batcher = Batcher(engine)
        self._follow = follow
        self._key = key
        super().__init__(port)

    @property
    def is_paused(self) -> bool:
        return not self._resumed.is_set()

    def pause(self) -> None:
        """As a learner that ended before it resumed the server has left it."""
        self._resumed.clear()

    def start(self) -> None:
        """Listen, at the same port as before; a server that was started again knows no adapter."""
        self.adapters = set()
        super().start()

    def close(self) -> None:
        super().close()
        self._batcher.close()

    def add_routes(self, app: web.Application) -> None:
        app.middlewares.append(self._check_key)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/tokenize", self._tokenize)
        if self.runtime_lora:
            app.router.add_post("/v1/load_lora_adapter", self._load)
        if self.dev_mode:
            app.router.add_post("/collective_rpc", self._rpc)
            app.router.add_post("/reset_prefix_cache", self._rpc)
            app.router.add_post("/pause", self._pause)
            app.router.add_post("/resume", self._resume)
            app.router.add_post("/update_weight_version", self._set_version)
            app.router.add_get("/weight_info", self._version)

    @web.middleware
    async def _check_key(self, request: web.Request, handler: Any) -> web.StreamResponse:
        sent = request.headers.get("Authorization")
        if self._key and request.path.startswith("/v1") and sent != f"Bearer {self._key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        names = ["tiny", *sorted(self.adapters)]
        return web.json_response(
            {"data": [{"id": n, "max_model_len": self._length} for n in names]}
        )

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids = self.tokenizer.encode(body["prompt"], add_special_tokens=body["add_special_tokens"])
        return web.json_response({"count": len(ids), "tokens": ids})

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.adapters.add(body["lora_name"])
        self.loaded.append(body["lora_path"])
        return web.Response(text="Success")

    async def _rpc(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "kwargs" in body:
            await asyncio.sleep(self.load_seconds)
            self.loaded.append(body["kwargs"]["weights_path"])
            self.held += self.loaded[-1:] if self.open else []
            if self._follow:
                load_weights(self._engine, self.loaded[-1])
        return web.json_response({})

    async def _pause(self, request: web.Request) -> web.Response:
        assert request.query["mode"] == "wait"
        self._resumed.clear()
        while self.open:
            await asyncio.sleep(0.001)
        return web.json_response({"status": "paused"})

    async def _resume(self, _: web.Request) -> web.Response:
        self._resumed.set()
        return web.json_response({"status": "resumed"})

    async def _set_version(self, request: web.Request) -> web.Response:
        self.version = (await request.json())["new_version"]
        return web.json_response({"success": True})

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.version})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        await self._resumed.wait()
        self.open += 1
        try:
            return await self._completed(request)
        finally:
            self.open -= 1

    async def _completed(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["model"] not in {"tiny", *self.adapters}:
            error = {"message": f"The model `{body['model']}` does not exist."}
            return web.json_response({"error": error}, status=404)
        if body["top_k"] == 1:  # the engine asks what the log-probabilities are
            logprobs = {"token_logprobs": [-1.0 if self.raw else 0.0]}
            return web.json_response({"choices": [{"logprobs": logprobs}]})
        if body["user"] != "probe":
            self.completions += 1
            spoiled = await self._spoil(request, self.fault(self.completions))
            if spoiled is not None:
                return spoiled
        if "prompt_logprobs" in body:
            choice = {"prompt_logprobs": self._scores(body["prompt"])}
            return web.json_response({"choices": [choice]})
        sampling = SamplingParams(body["max_tokens"], body["temperature"], stop=tuple(body["stop"]))
        self.seeds.append(body.get("seed"))
        seed = 0 if self.one_seed else body.get("seed", len(self.seeds))
        allowed = [[token] for token in body.get("allowed_token_ids", ())]
        choices = Choices.of(allowed) if allowed and self.heeds_allowed else None
        generation = GenerationRequest("", body["prompt"], sampling, seed=seed, choices=choices)
        result = await self._batcher.ask(generation)
        if body["user"] != "probe":
            self.served.append((body["model"], tuple(body["prompt"])))
        if result.error is not None:
            return web.json_response({"error": {"message": result.error}}, status=400)
        choice = {
            "token_ids": list(result.token_ids),
            "logprobs": {"token_logprobs": list(result.logprobs)},
            "finish_reason": result.finish_reason,
        }
        return web.json_response({"choices": [choice]})

    def _scores(self, ids: list[int]) -> list[dict[str, Any] | None]:
        """Each token's log-probability at temperature 1 and one of another token, as vLLM may."""
        import torch

        with torch.no_grad():
            logits = self._engine.model(input_ids=torch.tensor([ids])).logits[0]
        table = torch.log_softmax(logits.float(), -1)
        return [
            None,
            *(
                {str(i): {"logprob": float(table[t, i])} for i in (ids[t + 1] ^ 1, ids[t + 1])}
                for t in range(len(ids) - 1)
            ),
        ]

    async def _spoil(self, request: web.Request, fault: Fault) -> web.Response | None:
        if fault == "error":
            return web.Response(status=500, text="something broke")
        if fault == "busy":
            return web.Response(status=503, headers={"Retry-After": "0.05"}, text="busy")
        if fault == "garbage":
            return web.json_response({"choices": [{"text": "no ids"}]})
        if fault == "cut":
            request.transport.abort()
        if fault == "stall":
            await asyncio.sleep(self.stall_seconds)
        return None


def load_weights(engine: Any, path: str) -> None:
    """Give an engine's model the weights of a directory."""
    from safetensors.torch import load_file

    missing, unexpected = engine.model.load_state_dict(
        load_file(f"{path}/model.safetensors"), strict=False
    )
    assert not unexpected and all("lm_head" in name for name in missing), (missing, unexpected)
    engine.reset()
