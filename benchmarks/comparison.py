"""Do comparisons keep what they promise?

    python benchmarks/comparison.py [--equal 100] [--different 200] [--tasks 96] [--rollouts 4]

Two players play tasks of different difficulty with noise of their own. Prints one JSON line: in how
many repetitions two equal players show no difference (with many tasks, and with eight), and how
often a true difference of ten points is shown, beside what the plan announced.
"""

import argparse
import json
import math
import random
from typing import Any

from agentsgym import EnvPool, MultistepEnv, PrivilegedAgent, task_dataset
from agentsgym.envs import register
from agentsgym.evaluation import Plan, compare, rollout_requests
from agentsgym.rollout import play
from agentsgym.types import session_seed

FEW = 8
DIFFERENCE = 0.1
EASIEST, HARDEST = 0.7, 0.3


class QuizEnv(MultistepEnv):
    """Say "right" to win."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        return task_data

    def _format_prompt(self, state: Any, step: int) -> str:
        return "Well?"

    def _step_episode(self, session_id: str, state: Any, action: str) -> Any:
        win = action == "right"
        return state, float(win), True, {"win": win}


class Player(PrivilegedAgent):
    """Is right with the chance of the task, changed by `better`."""

    def __init__(self, better: float, seed: int) -> None:
        self._better = better
        self._rng = random.Random(seed)
        self._chance = 0.0

    def for_session(self, session: Any) -> "Player":
        self._chance = session.task_data["chance"] + self._better
        return self

    def get_action(self, messages: Any, agent_state: Any) -> tuple[str, None]:
        return "right" if self._rng.random() < self._chance else "wrong", None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--equal", type=int, default=100)
    parser.add_argument("--different", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=96)
    parser.add_argument("--rollouts", type=int, default=4)
    given = parser.parse_args()
    register("Quiz", QuizEnv)
    many, few = (given.tasks, given.rollouts), (FEW, given.rollouts)
    plan = Plan(given.tasks * given.rollouts, given.tasks)
    same_chances = Plan(plan.pairs, plan.clusters, spread())
    print(
        json.dumps(
            {
                "tasks": given.tasks,
                "rollouts_per_task": given.rollouts,
                "equal": {
                    "repetitions": given.equal,
                    "no_difference_shown": given.equal - shown(given.equal, 0.0, *many),
                    f"no_difference_shown_{FEW}_tasks": given.equal - shown(given.equal, 0.0, *few),
                },
                "ten_points": {
                    "repetitions": given.different,
                    "shown": shown(given.different, DIFFERENCE, *many),
                    "announced": round(given.different * plan.power(DIFFERENCE), 1),
                    "announced_for_these_chances": round(
                        given.different * same_chances.power(DIFFERENCE), 1
                    ),
                },
            }
        )
    )


def spread() -> float:
    """The standard deviation of a pair's difference: of two wins with the chances p ± 0.05, where p
    is uniform from `HARDEST` to `EASIEST`."""
    mean, variance = (EASIEST + HARDEST) / 2, (EASIEST - HARDEST) ** 2 / 12
    sides = (mean + DIFFERENCE / 2, mean - DIFFERENCE / 2)
    return math.sqrt(sum(p - p**2 - variance for p in sides))


def shown(repetitions: int, difference: float, tasks: int, rollouts: int) -> int:
    """In how many repetitions a difference is shown."""
    return sum(_shown(number, difference, tasks, rollouts) for number in range(repetitions))


def _shown(number: int, difference: float, tasks: int, rollouts: int) -> bool:
    rng = random.Random(f"tasks-{number}-{tasks}-{difference}")
    chances = [rng.uniform(HARDEST, EASIEST) for _ in range(tasks)]
    rows = task_dataset(QuizEnv(), [{"chance": chance} for chance in chances])
    asked = rollout_requests(rows, tasks * rollouts, rollouts_per_task=rollouts)
    sides = [
        play(asked, Player(better, session_seed(number, side, tasks, difference)), EnvPool())
        for side, better in enumerate((difference / 2, -difference / 2))
    ]
    return compare(*sides).reward.shown


if __name__ == "__main__":
    main()
