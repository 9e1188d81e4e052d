"""A server of a model that always says the same, with any chat template."""

import httpx

from agentsgym.generation.serving.app import create_app
from agentsgym.generation.serving.batcher import Batcher
from agentsgym.generation.serving.engine import EngineBackend, ModelFacts
from agentsgym.generation.serving.listening import ServerThread
from chat_tokenizers import template, tokenizer_for
from rollout.doubles import TextEngine

HTTP = httpx.Client(timeout=60)
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
}


class Asked(TextEngine):
    """Remembers the contexts that it was asked about."""

    def __init__(self, tokenizer, text):
        super().__init__(tokenizer, text)
        self.contexts = []

    def submit(self, requests):
        self.contexts += [self.tokenizer.decode(request.token_ids) for request in requests]
        super().submit(requests)


class Server:
    """Serves the model "m" with one of TRL's chat templates."""

    def __init__(self, name, text="a", max_model_len=100_000):
        tokenizer = tokenizer_for(template(name), "<|im_end|>")
        self.engine = Asked(tokenizer, text)
        self.batcher = Batcher(self.engine)
        facts = ModelFacts(name="m", root="m", max_model_len=max_model_len)
        self.thread = ServerThread(create_app(EngineBackend(self.batcher, facts, tokenizer)))
        self.url = self.thread.url

    def post(self, path, **body):
        return HTTP.post(f"{self.url}/v1/{path}", json={"model": "m", **body})

    def close(self):
        self.thread.close()
        self.batcher.close()
