"""What a run pays for its data: storing rollouts, computing metrics, and starting with many tasks.

    python benchmarks/storage.py [--threads N] [--rows N] [--only store|step|start]

1. `store`: a generation of 512 rollouts of 8,192 tokens in 16 turns (drawn numbers) is stored and
   its figures computed. The share is of a simulated step: the seconds in which one H100 learns from
   these tokens, 6 * parameters FLOP per token at 40 % of 989 TFLOP/s. Sampling, environments and
   the transfer of weights take time as well, so the share of a real step is smaller.
2. `step`: the same share measured in training steps of the quickstart on this machine.
3. `start`: from opening a file of tasks to the first generation's rows, for `--rows` rows as JSON
   lines and as Arrow, in a process of its own; growth of the peak of resident memory (`peak_mb`,
   with the pages of mapped files) and of the process's own (`anonymous_mb`) against a file of 1,000
   rows. Nothing is cached, so the second start is like the first.

The last line is one JSON object.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
import numpy as np

from agentsgym.types import Episode, Message, Rollout, Step

ROLLOUTS, TOKENS, TURNS, GROUP = 512, 8192, 16, 8
FLOPS = 0.4 * 989e12
BILLIONS = (0.5, 1.5, 7.6)
_TEXT = "look at the shelf and say what is there " * 20


# -- storing a large generation -----------------------------------------------------------------


def generation(rollouts: int, tokens: int) -> tuple[list[Rollout], list[np.ndarray[Any, Any]]]:
    """Rollouts with drawn ids and log-probabilities, half of whose tokens are the agent's, and the
    advantages of their rows."""
    rng = np.random.default_rng(0)
    turn = tokens // TURNS
    mask = ([0] * (turn // 2) + [1] * (turn - turn // 2)) * TURNS
    made = [_rollout(number, rng, mask) for number in range(rollouts)]
    return made, [np.array(mask) * rng.normal() for _ in made]


def _rollout(number: int, rng: np.random.Generator, mask: list[int]) -> Rollout:
    turn = len(mask) // TURNS
    chosen = np.array(mask)
    logprobs = rng.exponential(0.3, len(mask)).astype(np.float32) * -chosen
    asked, said = (Message("user", _TEXT),), Message("assistant", _TEXT)
    steps = tuple(
        Step(
            k, asked, said, 0.0, k == TURNS - 1, parent=k - 1 if k else None,
            begins="" if k else "episode", whole=not k,
        )
        for k in range(TURNS)
    )  # fmt: skip
    episode = Episode(0, steps, float(number % 2), 1.0, "done")
    group, index = divmod(number, GROUP)
    starts = np.arange(TURNS) * turn
    return Rollout(
        session_id=f"session-{number}", group=group, index=index, env_class_path="Talk",
        env_config={}, task_data={"seed": group}, episodes=(episode,),
        token_ids=rng.integers(0, 150_000, len(mask)), logprobs=logprobs,
        at=np.stack([starts, starts + turn // 2, starts + turn], axis=1), seed=number,
    )  # fmt: skip


def store(rollouts: int, tokens: int) -> dict[str, Any]:
    """Seconds to store a generation and to compute its figures, and their share of a step."""
    from agentsgym.evaluation.metrics import record, summarize
    from agentsgym.runs.files import MetricsFile, RolloutWriter

    played, advantages = generation(rollouts, tokens)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        watch = common.Stopwatch("cpu")
        info = {"phase": "train", "step": 0, "advantages": advantages}
        RolloutWriter(root)(played, info)
        stored, stored_cpu = watch.read()
        watch = common.Stopwatch("cpu")
        figures = summarize([record(rollout) for rollout in played], per_environment=False)
        MetricsFile(root / "metrics.jsonl").append("train", 1, figures)
        summarized, summarized_cpu = watch.read()
        files = list((root / "rollouts").glob("*.parquet"))
        size = sum(path.stat().st_size for path in files)
    cpu = stored_cpu + summarized_cpu
    count = rollouts * tokens
    return {
        "tokens": count,
        "store_seconds": round(stored, 3),
        "cpu_store_seconds": round(stored_cpu, 3),
        "metrics_seconds": round(summarized, 4),
        "megabytes": round(size / 1e6, 1),
    } | {
        f"share_of_{billions}B": round(cpu / (6 * billions * 1e9 * count / FLOPS), 5)
        for billions in BILLIONS
    }


# -- real training steps ------------------------------------------------------------------------


def cpu_of_calls(owner: Any, name: str) -> list[float]:
    """A list that gets the process's CPU seconds in each later call of `owner`'s method `name`."""
    method, seconds = getattr(owner, name), list[float]()

    def timed(*args: Any) -> Any:
        start = time.process_time()
        result = method(*args)
        seconds.append(time.process_time() - start)
        return result

    setattr(owner, name, timed)
    return seconds


def cpu_at_calls(owner: Any, name: str) -> list[float]:
    """A list that gets the process's CPU seconds so far at each later call."""
    method, times = getattr(owner, name), list[float]()

    def noted(*args: Any) -> Any:
        times.append(time.process_time())
        return method(*args)

    setattr(owner, name, noted)
    return times


def step(steps: int, threads: int) -> dict[str, Any]:
    """The share of the quickstart's steps that storing and metrics take."""
    from agentsgym.runs import load_config, train_run
    from agentsgym.runs.files import MetricsFile, RolloutWriter
    from agentsgym.training.metrics import Reports

    with tempfile.TemporaryDirectory() as folder:
        changes = {
            "output_dir": folder + "/run", "train.max_steps": steps, "eval.rollouts": 16,
            "threads": threads,
        }  # fmt: skip
        calls = {
            "store": cpu_of_calls(RolloutWriter, "__call__"),
            "figures": cpu_of_calls(Reports, "figures"),
            "line": cpu_of_calls(MetricsFile, "append"),
        }
        ends = cpu_at_calls(MetricsFile, "append")
        train_run(load_config("quickstart", changes))
        size = sum(path.stat().st_size for path in Path(folder, "run/rollouts").glob("train-*"))
    seconds = (ends[-1] - ends[0]) / (len(ends) - 1)
    parts = {name: common.median(values) for name, values in calls.items()}
    return {
        "cpu_seconds": round(seconds, 3),
        "cpu_store_seconds": round(parts["store"], 4),
        "cpu_metrics_seconds": round(parts["figures"] + parts["line"], 4),
        "kilobytes_per_step": round(size / steps / 1e3),
        "share": round(sum(parts.values()) / seconds, 5),
    }


# -- starting with many tasks -------------------------------------------------------------------


def start(rows: int) -> dict[str, Any]:
    """Seconds and memory until the first rows are drawn, for each kind of file."""
    result: dict[str, Any] = {"rows": rows}
    for kind in ("jsonl", "arrow"):
        few, many = (_written(kind, count) for count in (1000, rows))
        base = _started(few)
        one = _started(many)
        growth = {key: round(one[key] - base[key]) for key in ("peak_mb", "anonymous_mb")}
        result[kind] = {"seconds": one["seconds"], "cpu_seconds": one["cpu_seconds"], **growth}
        result[f"{kind}_megabytes"] = round(_size(many) / 1e6)
    return result


def _written(kind: str, rows: int) -> Path:
    """A file of tasks; one that was written before is kept."""
    path = common.CACHE / f"tasks-{rows}.{kind}"
    if not path.exists():
        part = path.with_suffix(".part")
        (_write_lines if kind == "jsonl" else _write_arrow)(part, rows)
        part.rename(path)
    return path


def _chunks(rows: int) -> Iterator[range]:
    return (range(first, min(first + 100_000, rows)) for first in range(0, rows, 100_000))


def _write_lines(path: Path, rows: int) -> None:
    with path.open("w") as file:
        for chunk in _chunks(rows):
            file.writelines(
                f'{{"env_class_path": "Bandit", "env_config": {{"arms": {3 + n % 4}}}, '
                f'"task_data": {{"seed": {n}}}}}\n'
                for n in chunk
            )


def _write_arrow(path: Path, rows: int) -> None:
    """The file that `Dataset.save_to_disk` would write, without a dict per row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from agentsgym import make, task_dataset

    schema = task_dataset(make("Bandit"), [{"seed": 0}]).data.schema

    def objects(key: str, values: np.ndarray[Any, Any]) -> Any:
        text = pc.binary_join_element_wise(
            f'{{"{key}":', pa.array(values).cast(pa.string()), "}", ""
        )
        return pa.ExtensionArray.from_storage(schema.field("task_data").type, text)

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for chunk in _chunks(rows):
            numbers = np.arange(chunk.start, chunk.stop)
            columns = [
                pa.array(["Bandit"] * len(chunk)),
                objects("arms", 3 + numbers % 4),
                objects("seed", numbers),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _size(path: Path) -> int:
    return path.stat().st_size


def _started(path: Path) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", __file__, "--start", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def start_here(path: Path) -> dict[str, Any]:
    """Open a file of tasks, make a trainer on it, and draw the rows of its first generation."""
    from agentsgym import GRPOEnvConfig, GRPOEnvTrainer
    from agentsgym.envs.dataset import TaskFile
    from agentsgym.evaluation import default_cluster, select

    model, tokenizer = common.tiny()
    watch = common.Stopwatch("cpu")
    rows = TaskFile(path)
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOEnvConfig(
            output_dir=folder, max_steps=2, per_device_train_batch_size=256, num_generations=8,
            report_to="none", use_cpu=True,
        )  # fmt: skip
        trainer = GRPOEnvTrainer(model, args, rows, None, tokenizer)
        first = trainer.tasks.generation(0)
        chosen = select(rows, 8, cluster=default_cluster)  # as the check for a signal does
    assert len(first) == 32 and first[0] != first[1] and len(chosen) == 8
    seconds, cpu = watch.read()
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), **_memory()}


def _memory() -> dict[str, float]:
    """Peak of resident memory, and the part that is no page of a file, in MB."""
    text = Path("/proc/self/status").read_text()
    lines = dict(line.split(":", 1) for line in text.splitlines())
    names = {"peak_mb": "VmHWM", "anonymous_mb": "RssAnon"}
    return {key: int(lines[name].split()[0]) / 1024 for key, name in names.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_common_arguments(parser)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--only", choices=("store", "step", "start"))
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    common.set_up(args)
    if args.start is not None:
        common.finish(start_here(args.start))
        return
    rollouts, tokens, rows = (16, 256, 2000) if args.quick else (ROLLOUTS, TOKENS, args.rows)
    parts = {
        "store": lambda: store(rollouts, tokens),
        "step": lambda: step(2 if args.quick else 8, args.threads),
        "start": lambda: start(rows),
    }
    results = {name: run() for name, run in parts.items() if args.only in (None, name)}
    for name, values in results.items():
        print(f"  {name}: {values}", flush=True)
    common.finish({"threads": args.threads, "device": common.device_name("cpu"), **results})


if __name__ == "__main__":
    main()
