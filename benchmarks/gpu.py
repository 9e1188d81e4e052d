"""A day on a GPU in one command: everything here that needs one, in parts of at most four minutes.

    python benchmarks/gpu.py [PART ...] [--device cpu] [--out build/gpu.json]

Each part is a script of this folder in a process of its own. A part that fails, is not done after
four minutes or lacks vLLM becomes a line of the table, and the others go on. All figures are in one
JSON file, the main ones in the table; parts that were run before keep theirs, so that parts may be
run one by one. Without a GPU everything runs on the CPU with tiny sizes: that tries the code, and
its figures mean nothing.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).resolve().parent
LIMIT = 240.0
"""Seconds of a part."""
GRACE = 20.0
_TAIL = 300
_DETAIL = re.compile(r"^cpu_|_growth|_mb$")
_TOTAL = re.compile(r"measured_mb$|peak_memory_mb$")


@dataclass(frozen=True, slots=True)
class Part:
    """A script with its arguments on a GPU, and those with which a CPU tries it; `what` it
    compares."""

    what: str
    script: str
    on_gpu: str
    on_cpu: str


def _of_size(size: str) -> dict[str, Part]:
    """The parts with a random Llama of `size` billions of parameters."""
    llama = f"a random Llama of {size} B"
    engines = f"our engine beside TRL's generate and transformers' continuous batching, {llama}"
    trial = "--models 0.002 --continuous --sessions 4 --repeats 1 --threads 1"
    kinds = ("", "-checkpointing", "-lora-checkpointing")
    return {
        f"generation-{size}": Part(
            engines,
            "generation.py",
            f"--models {size} --repeats 1 --turns 1 20",
            f"{trial} --turns 1 3",
        ),
        f"generation-{size}-long": Part(
            engines,
            "generation.py",
            f"--models {size} --repeats 1 --turns 50",
            f"{trial} --turns 4",
        ),
        f"training-step-{size}": Part(
            f"a training step beside TRL's, {llama}",
            "training_step.py",
            f"--model {size} --repeats 1",
            "--model 0.002 --quick --threads 1",
        ),
        f"training-step-{size}-long": Part(
            f"the same with prompts of 1,000 tokens in groups of 16, {llama}",
            "training_step.py",
            f"--model {size} --case long --repeats 1",
            "--model 0.002 --case long --quick --rollouts 8 --group 4 --threads 1",
        ),
        f"memory-{size}": Part(
            f"peak memory beside --estimate, {llama}",
            "memory.py",
            "--case " + " ".join(f"llama-{size}-bfloat16{kind}" for kind in kinds),
            "--case trial",
        ),
    }


PARTS = {
    "equality": Part(
        "what the engine samples there and on the CPU, 18 families",
        "device.py",
        "equality",
        "equality --families llama --threads 1",
    ),
    "graph": Part(
        "a decode pass of the plain model, eager and as a CUDA graph, a random Llama of 0.5 B",
        "device.py",
        "graph",
        "graph --model 0.002 --rows 4 --threads 1",
    ),
    **_of_size("0.5"),
    **_of_size("1.5"),
    "one-gpu": Part(
        "the preset one-gpu with its vLLM server",
        "one_gpu.py",
        "train",
        "train --steps 2 --threads 1",
    ),
    "logprobs": Part(
        "log-probabilities of vLLM, of our engine, and of a plain forward pass",
        "one_gpu.py",
        "logprobs",
        "logprobs --threads 1",
    ),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a part: `status` is "done", "failed", "not done in time" or "not run"."""

    status: str
    device: str
    seconds: float
    figures: dict[str, Any] = field(default_factory=dict)
    reason: str = ""


def run_part(part: Part, device: str, log: Path) -> Outcome:
    """Run a part in a process group of its own, which is ended after LIMIT seconds."""
    arguments = (part.on_gpu if device.startswith("cuda") else part.on_cpu).split()
    command = [sys.executable, "-W", "ignore", str(FOLDER / part.script), "--device", device]
    started = time.monotonic()
    with log.open("w") as output, log.with_suffix(".err").open("w") as errors:
        process = subprocess.Popen(
            [*command, *arguments], stdout=output, stderr=errors, start_new_session=True
        )
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            in_time = process.poll() is not None
            _end(process)
    figures = dict(_figures(log.read_text().splitlines()))
    status, reason = "done", ""
    if not in_time:
        status, reason = "not done in time", f"after {LIMIT:.0f} s; see {log}"
    elif "not_run" in figures:
        status, reason = "not run", str(figures.pop("not_run"))
    elif process.returncode:
        last = log.with_suffix(".err").read_text().strip()[-_TAIL:]
        status, reason = "failed", f"{' '.join(last.split())} (see {log})"
    name = str(figures.pop("device", device))
    return Outcome(status, name, round(time.monotonic() - started, 1), figures, reason)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End what is left of a part; servers that it started end with it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _figures(lines: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The figures of all lines that are a JSON object; those of a case have its name before
    theirs."""
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict):
            before = f"{values.pop('case')}: " if "case" in values else ""
            for key, value in values.items():
                yield (key if key == "device" else before + key), value


def table(outcomes: Mapping[str, Mapping[str, Any]]) -> str:
    """All parts' main figures, in Markdown."""
    rows = [("part", "figure", "value"), ("---", "---", "---")]
    for name, part in PARTS.items():
        outcome = outcomes.get(name)
        if outcome is None:
            rows.append((name, part.what, "not run"))
            continue
        status = f"{outcome['status']}, {outcome['seconds']:.0f} s, {outcome['device']}"
        rows.append((name, part.what, f"{status}. {outcome['reason']}".removesuffix(". ")))
        figures = outcome["figures"].items()
        rows += [(name, key, str(value)) for key, value in figures if _is_main(key)]
    rows = [tuple(cell.replace("|", "/") for cell in row) for row in rows]  # type: ignore[misc]
    widths = [max(len(row[k]) for row in rows) for k in range(2)]
    return "\n".join(f"| {a:<{widths[0]}} | {b:<{widths[1]}} | {c} |" for a, b, c in rows)


def _is_main(key: str) -> bool:
    return _TOTAL.search(key) is not None or _DETAIL.search(key) is None


def stored(path: Path, on_gpu: bool) -> dict[str, Any]:
    """The results of parts that were run before on the same kind of device."""
    try:
        results: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {"on_gpu": on_gpu, "parts": {}}
    return results if results.get("on_gpu") == on_gpu else {"on_gpu": on_gpu, "parts": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=FOLDER.parent / "build" / "gpu.json")
    args = parser.parse_args()
    on_gpu = args.device.startswith("cuda")
    logs = args.out.with_suffix("")
    logs.mkdir(parents=True, exist_ok=True)
    if not on_gpu:
        print("no GPU: tiny sizes on the CPU, whose figures mean nothing", flush=True)
    results = stored(args.out, on_gpu) | {"torch": torch.__version__}
    failed = []
    for name in args.parts or PARTS:
        print(f"{name}: {PARTS[name].what} …", flush=True)
        outcome = run_part(PARTS[name], args.device, logs / f"{name}.log")
        print(f"  {outcome.status} after {outcome.seconds:.0f} s {outcome.reason}", flush=True)
        results["parts"][name] = asdict(outcome)
        args.out.write_text(json.dumps(results, indent=1) + "\n")
        failed += [name] if outcome.status in ("failed", "not done in time") else []
    if not on_gpu:
        print("\nOn the CPU with tiny sizes: these figures mean nothing.")
    print(f"\n{table(results['parts'])}\n\n{args.out}")
    if failed:
        sys.exit(f"without figures: {', '.join(failed)}")


if __name__ == "__main__":
    main()
