"""What a step costs where the environment is: in this process, in its processes, in Ray's actors.

    python benchmarks/places.py

Prints one JSON line. 64 sessions are open at once, of an engine that answers at once with the same
action, so that the environments and the way to them are all that takes time. All places play the
same games. Steps per wall second, the best of several rounds in which the places take turns; Ray
runs on this machine.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentsgym import DirectOutputAgent, make
from agentsgym.rollout.workers.pool import stop_workers
from agentsgym.types import EngineStats, GenerationRequest, GenerationResult

SESSIONS, WORKERS, ROUNDS, TURNS = 64, 2, 3, 20
PLACES = ("here", "processes", "ray")


class InstantEngine:
    """Answers every request with the same text."""

    tokenizer = None
    stats = EngineStats()

    def __init__(self, answer: str, capacity: int) -> None:
        self.capacity = capacity
        self._answer = answer
        self._ready: list[GenerationResult] = []

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        self._ready += [GenerationResult.of_text(self._answer, r.session_id) for r in requests]

    def poll(self) -> list[GenerationResult]:
        ready, self._ready = self._ready, []
        return ready

    def cancel(self, session_ids: Sequence[str]) -> None: ...

    def release(self, session_ids: Sequence[str]) -> None: ...


def main() -> None:
    """Print all figures as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="in seconds, without meaning")
    quick = parser.parse_args().quick
    sessions, rounds = (4, 1) if quick else (SESSIONS, ROUNDS)
    start_ray()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, action, config, tasks in games(Path(folder), sessions):
            best = dict.fromkeys(PLACES, 0.0)
            for _ in range(rounds):
                rates, played = {}, []
                for place in PLACES:
                    rates[place], told = rate(name, action, config | where(place), tasks)
                    played.append(told)
                if any(told != played[0] for told in played):
                    raise SystemExit(f"{name}: not all places played the same games")
                best = {place: max(best[place], rates[place]) for place in PLACES}
            figures |= {f"{name}_{place}_steps_per_second": best[place] for place in PLACES}
            for place in ("here", "ray"):
                figures[f"{name}_{place}_over_processes"] = best[place] / best["processes"]
    stop_workers()
    print(json.dumps({key: float(f"{value:.4g}") for key, value in figures.items()}))


def start_ray() -> None:
    """A cluster of this process."""
    import ray

    ray.init(
        address="local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False,
        logging_level="warning",
    )  # fmt: skip


def where(place: str) -> dict[str, Any]:
    """The configuration of a place."""
    return {"place": place, "workers": 0 if place == "here" else WORKERS}


def games(
    folder: Path, sessions: int
) -> list[tuple[str, str, dict[str, Any], list[Mapping[str, Any]]]]:
    """Environments, an action that never ends a game, their configurations and their tasks."""
    from agentsgym.envs.alfworld import TASK_TYPES
    from agentsgym.envs.alfworld.games import generated_tasks

    long = {"max_steps_per_episode": TURNS}
    questions = make("TwentyQuestions").get_train_dataset()["task_data"]
    rooms = generated_tasks(folder, "train", list(TASK_TYPES)[:2], 2)
    return [
        ("TwentyQuestions", "Is it an animal?", long, repeated(questions, sessions)),
        ("ALFWorld", "look", long, repeated(rooms, sessions)),
    ]


def repeated(tasks: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """The first tasks, again from the beginning where there are too few."""
    return [tasks[k % len(tasks)] for k in range(count)]


def rate(
    name: str, action: str, config: dict[str, Any], tasks: Sequence[Mapping[str, Any]]
) -> tuple[float, list[Any]]:
    """Steps per second, and what was said."""
    env = make(name, None, config, allow_paths=[tempfile.gettempdir()])
    agent = DirectOutputAgent(InstantEngine(action, len(tasks)))
    env.run_trial(tasks[:2], agent)
    began = time.perf_counter()
    batch = env.run_trial(tasks, agent)
    seconds = time.perf_counter() - began
    steps = sum(len(rewards) for rewards in batch["step_rewards"])
    return steps / seconds, batch["final_completion_messages"]


if __name__ == "__main__":
    main()
