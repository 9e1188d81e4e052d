"""Steps per second of an environment behind `agentsgym serve`, beside native play.

    .venv/bin/python benchmarks/openenv_steps.py

The same games are played natively (`run_trial` with a scripted agent), by one and by 50
connections of a bare WebSocket client in this process, and by the environment `OpenEnv` (one game
after the other); a ratio is printed only if all say the same. The server is a process of its own.
Ends with one line of JSON; ratios are seconds per step over native seconds per step, wall time, the
best of the rounds.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import websockets

from agentsgym import MultistepEnv, ScriptedAgent, make

ENV = "Bandit"
CONFIG = {"max_steps_per_episode": 20}
ACTION = "red"

Played = list[list[str]]


@contextmanager
def server(sessions: int) -> Iterator[str]:
    """The address of a server."""
    settings = [f"{key}={value}" for key, value in CONFIG.items()]
    command = [sys.executable, "-m", "agentsgym", "serve", ENV, *settings, "--port", "0"]
    process = subprocess.Popen(
        [*command, "--sessions", str(sessions)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    try:
        yield found[0]
    finally:
        process.kill()
        process.wait()


async def played_by(url: str, connections: int, games: int) -> Played:
    """The texts of each game, played by `connections` clients at once."""
    texts: Played = [[] for _ in range(games)]

    async def client(first: int) -> None:
        async with websockets.connect(f"{url.replace('http', 'ws')}/ws", proxy=None) as line:

            async def ask(kind: str, **data: Any) -> dict[str, Any]:
                await line.send(json.dumps({"type": kind, "data": data}))
                answer: dict[str, Any] = json.loads(await line.recv())["data"]
                return answer

            for game in range(first, games, connections):
                seen = await ask("reset", split="train", index=game)
                while not seen["done"]:
                    texts[game].append(seen["observation"]["text"])
                    seen = await ask("step", text=ACTION)

    await asyncio.gather(*(client(number) for number in range(connections)))
    return texts


def run_trial(env: MultistepEnv, tasks: list[Any]) -> Played:
    """The texts of each game, played by the library."""
    rollouts = env.run_trial(tasks, ScriptedAgent([ACTION])).rollouts
    return [[step.observation for step in r.episodes[0].steps] for r in rollouts]


def timed(rounds: int, play: Callable[[], Played]) -> tuple[float, Played]:
    """The fewest seconds of the rounds, and what was played."""
    best, texts = float("inf"), []
    for _ in range(rounds):
        start = time.perf_counter()
        texts = play()
        best = min(best, time.perf_counter() - start)
    return best, texts


def main() -> None:
    """Print the steps per second of each way, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="seconds, without meaning")
    given = parser.parse_args()
    games, clients, rounds = given.games, given.clients, given.rounds
    if given.quick:
        games, clients, rounds = 8, 4, 1
    env = make(ENV, None, CONFIG)
    tasks = env.get_train_dataset()["task_data"][:games]
    with server(clients) as url:
        door = make("OpenEnv", None, {"base_url": url, "sessions": clients})
        rows = [{"split": "train", "index": k} for k in range(games)]
        ways: dict[str, Callable[[], Played]] = {
            "native": lambda: run_trial(env, tasks),
            "one_client": lambda: asyncio.run(played_by(url, 1, games)),
            "many_clients": lambda: asyncio.run(played_by(url, clients, games)),
            "door": lambda: run_trial(door, rows),
        }
        for play in ways.values():
            play()  # imports, connections, the server's tasks
        found = {name: timed(rounds, play) for name, play in ways.items()}
    seconds = {name: best for name, (best, _) in found.items()}
    texts = [played for _, played in found.values()]
    if any(played != texts[0] for played in texts):
        sys.exit("the games differ, so there is no ratio")
    steps = sum(map(len, texts[0]))
    print(f"{games} games, {steps} steps, {clients} clients, {rounds} rounds")
    figures: dict[str, float] = {"steps": steps, "clients": clients}
    figures |= {f"{name}_steps_per_second": steps / best for name, best in seconds.items()}
    figures |= {
        f"{name}_over_native": best / seconds["native"]
        for name, best in seconds.items()
        if name != "native"
    }
    print(json.dumps({key: float(f"{value:.4g}") for key, value in figures.items()}))


if __name__ == "__main__":
    main()
