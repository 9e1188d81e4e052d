"""A program that is called as `vllm` is and serves nothing.

FAKE_VLLM says how it behaves: "dies" at the start, or is "never" ready. It has a child,
as vLLM does, and writes the process numbers of both to the file FAKE_VLLM_PIDS.
"""

import os
import subprocess
import sys
import time


def main() -> None:
    how = os.environ.get("FAKE_VLLM", "")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(os.environ["FAKE_VLLM_PIDS"], "a") as file:
        file.write(f"{os.getpid()} {child.pid}\n")
    sys.stdout.write("INFO 11-22 05:00:00 [api_server.py:1] fake vllm starts\n")
    sys.stdout.flush()
    if how == "dies":
        sys.stderr.write("ValueError: no room for the KV cache\nRuntimeError: see above\n")
        sys.exit(3)
    time.sleep(600)


if __name__ == "__main__":
    main()
