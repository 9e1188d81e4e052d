"""Whether a model that knows the form of calls learns when and with what to call tools.

    python experiments/tool_learning.py [--steps 60] [--seeds 0 1 2]

Trains examples/tool_env.py with each seed: a new tiny model imitates a clerk who calls the right
tool half the time and guesses three times in ten, then GRPO. The answer stands only in a tool's
result, so guessing wins 5 %. Prints one JSON line: the held-out win rates before and after, and the
mean after training with its 95 % interval over the seeds. About a minute of CPU per seed, on one
thread.
"""

import argparse
import json
import sys
from pathlib import Path

from agentsgym.evaluation.intervals import rate_interval

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import tool_env


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    runs = [tool_env.main(arguments.steps, seed) for seed in arguments.seeds]
    before, after = ([round(run[k], 4) for run in runs] for k in (0, 1))
    low, high = rate_interval(after, arguments.seeds)
    mean = sum(after) / len(after)
    interval = [round(low, 4), round(high, 4)]
    print(json.dumps({"before": before, "after": after, "mean": mean, "interval": interval}))


if __name__ == "__main__":
    main()
