"""`agentsgym serve-model` in a thread of the test, and as a process."""

import subprocess
import sys
import time

import httpx

from agentsgym.generation.serving.listening import ServerThread
from agentsgym.generation.settings import EngineSettings
from agentsgym.runs.serve_model import application, load_engine
from agentsgym.runs.settings import ModelSettings


class Served:
    """The application of a model in a thread."""

    def __init__(self, folder, *, cache_gib=None, **options):
        settings = EngineSettings(capacity=16, cache_gib=cache_gib)
        self.engine = load_engine(ModelSettings(path=str(folder), dtype="float32"), settings)
        app, self.batcher = application(self.engine, "m", max_model_len=400, **options)
        self.server = ServerThread(app)
        self.url = self.server.url

    def post(self, path="/v1/completions", key=None, **body):
        body = {"model": "m", "prompt": [5, 6]} | body
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.post(self.url + path, json=body, headers=headers, timeout=30)

    def close(self):
        self.server.close()
        self.batcher.close()


class ServeProcess:
    """The command with a model's folder, at a port of this machine."""

    def __init__(self, folder, port, *more):
        command = ("-P", "-m", "agentsgym", "serve-model", str(folder), "--port", str(port))
        self.process = subprocess.Popen([sys.executable, *command, "--threads", "1", *more])
        self.url = f"http://127.0.0.1:{port}"

    def ready(self):
        end = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < end
            time.sleep(0.05)
        return self

    def end(self):
        self.process.terminate()
        self.process.wait(20)

    def _answers(self):
        assert self.process.poll() is None
        try:
            return httpx.get(f"{self.url}/health").status_code == 200
        except httpx.TransportError:
            return False
