"""A program that is called as `vllm` is: `vllm serve DIRECTORY --host H --port P …`.

It is a real process that serves a model by completions_server.py. FAKE_VLLM says how it behaves:
"dies" at the start, is "never" ready, "stubborn" ignores SIGTERM besides. It has a child, as vLLM
does, and writes the process numbers of both to the file FAKE_VLLM_PIDS.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    how = os.environ.get("FAKE_VLLM", "")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(os.environ["FAKE_VLLM_PIDS"], "a") as file:
        file.write(f"{os.getpid()} {child.pid}\n")
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.write("INFO 11-22 05:00:00 [api_server.py:1] fake vllm starts\n")
    sys.stdout.flush()
    if how == "dies":
        sys.stderr.write("ValueError: no room for the KV cache\nRuntimeError: see above\n")
        sys.exit(3)
    if how in ("never", "stubborn"):
        time.sleep(600)
    serve(*sys.argv[1:])


def serve(word: str, folder: str, *options: str) -> None:
    assert word == "serve"
    parser = argparse.ArgumentParser()
    for name in ("--host", "--served-model-name", "--dtype", "--logprobs-mode"):
        parser.add_argument(name, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--enable-lora", action="store_true")
    given, _ = parser.parse_known_args(options)
    assert given.host == "127.0.0.1" and given.logprobs_mode == "processed_logprobs"
    Path(os.environ["FAKE_VLLM_PIDS"]).with_name("options.json").write_text(json.dumps(options))

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from agentsgym.generation.embedded.engine import EmbeddedEngine
    from completions_server import CompletionsServer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    CompletionsServer(
        EmbeddedEngine(model, tokenizer, capacity=32),
        key=os.environ["VLLM_API_KEY"],
        dev_mode=os.environ.get("VLLM_SERVER_DEV_MODE") == "1",
        runtime_lora=given.enable_lora,
        follow=True,
        port=given.port,
        names=(given.served_model_name,),
    )
    time.sleep(600)


if __name__ == "__main__":
    main()
