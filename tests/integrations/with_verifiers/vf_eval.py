"""verifiers' own command against an endpoint, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PATHS = [str(HERE.parents[2] / "src"), str(HERE.parents[2] / "examples/verifiers")]


def vf_eval(folder, url, *arguments):
    """The traces of `vf-eval ARGUMENTS`, by the index of their tasks."""
    command = [str(Path(sys.executable).with_name("vf-eval")), *arguments, "-m", "scripted"]
    command += ["--client.base-url", f"{url}/v1", "--client.api-key-var", "NO_KEY"]
    done = subprocess.run(
        [*command, "-r", "1", "--no-rich", "--no-push"],
        cwd=folder,
        env={**os.environ, "NO_KEY": "none", "PYTHONPATH": os.pathsep.join(PATHS)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (path,) = folder.glob("outputs/*/traces.jsonl")
    traces = [trace for line in path.read_text().splitlines() for trace in traces_of(line)]
    return {trace["task"]["data"]["idx"]: trace for trace in traces}


def traces_of(line):
    record = json.loads(line)
    return record.get("traces", [record])


def conversation(trace):
    return [
        {"role": node["message"]["role"], "content": node["message"]["content"]}
        for node in trace["nodes"]
    ]


def reward(trace):
    return sum(part["score"] * part["weight"] for part in trace["rewards"].values())
