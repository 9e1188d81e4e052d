"""Time and size of `agentsgym export --to inspect` for 1,000 rollouts. One line of JSON.

    .venv-inspect/bin/python benchmarks/inspect_logs.py [--rollouts N]

The rollouts are Twenty Questions by the optimal player; they have no tokens, which a log does not
contain. `seconds` are on the wall and `cpu_seconds` of the process, both without `import_seconds`,
the CPU time to import Inspect. `load` is the machine's load at the start.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from agentsgym import make
from agentsgym.report.viewer.source import Source
from agentsgym.runs.files import RolloutWriter


def played(folder: Path, count: int) -> int:
    """Write `count` rollouts; the number of their steps."""
    env = make("TwentyQuestions")
    rows = [row["task_data"] for row in env.get_eval_dataset()]
    tasks = [rows[number % len(rows)] for number in range(count)]
    rollouts = env.run_trial(tasks, env.optimal_agent()).rollouts
    RolloutWriter(folder)(rollouts, {"phase": "after", "step": 0, "advantages": None})
    return sum(len(episode.steps) for rollout in rollouts for episode in rollout.episodes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rollouts", type=int, default=1000)
    count = parser.parse_args().rollouts
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        steps = played(Path(folder, "run"), count)
        cpu = time.process_time()
        from agentsgym.integrations.inspect.log import write_logs

        imported = time.process_time() - cpu
        start, cpu = time.perf_counter(), time.process_time()
        write_logs(Source(Path(folder, "run")), Path(folder, "logs"))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        size = sum(path.stat().st_size for path in Path(folder, "logs").iterdir())
    print(
        json.dumps(
            {
                "rollouts": count,
                "steps_per_rollout": round(steps / count, 1),
                "seconds": round(seconds, 1),
                "cpu_seconds": round(cpu, 1),
                "import_seconds": round(imported, 1),
                "megabytes": round(size / 1e6, 1),
                "load": round(load, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
