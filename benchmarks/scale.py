"""What the library costs per step and per session, from 100 sessions to 10,000, without a model.

    python benchmarks/scale.py [sessions] [http] [--tokenizer smollm2]

An engine answers each request after a latency drawn for it (log-normal, 20 to 400 ms), so that all
time but its own is the library's. The parts, both by default:

sessions   100, 1,000 and 10,000 sessions at once in one process: CPU time of our thread per
           environment step without the engine's (`overhead_us`), memory per session
           (`kib_per_session`; `traced_kib_per_session` by tracemalloc), and requests in flight over
           the engine's capacity while sessions waited (`occupancy`).
http       CPU time of our process per step (`http_us`), 256 sessions at once over an HTTP server
           in another process that speaks vLLM's completions API.

Every game is checked: turns, answers and rewards are those drawn for it, or there are no figures.
The last line is one JSON object. Each figure comes from a process of its own, so that no run sees
the memory of another.
"""

import argparse
import asyncio
import gc
import hashlib
import heapq
import json
import logging
import math
import os
import resource
import subprocess
import sys
import time
import tracemalloc
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import common

from agentsgym import DirectOutputAgent, MultistepEnv, SamplingParams, register
from agentsgym.rollout import run
from agentsgym.types import EngineStats, GenerationRequest, GenerationResult

SHORTEST, MEDIAN, LONGEST, SIGMA = 0.02, 0.08, 0.4, 0.8
TEXTS = 4096
_QUANTILES = 4096
_THINGS = ("door", "lamp", "box", "key", "stone", "map", "rope", "coin", "book", "bell", "cup")
_PLACES = ("left", "right", "north", "south", "attic", "cellar", "garden", "kitchen")
RULES = (
    "You walk through a house. Each turn you see one thing, and you say where you go and what you "
    "look at, with a number. The walk ends after some turns, and its end decides what it earns. "
    "Answer with one sentence only, without any explanation."
)


# -- the game: pure functions of a game and a turn ----------------------------------------------


def random_bits(*parts: object) -> int:
    """64 bits that depend only on the parts."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


@cache
def latencies() -> tuple[float, ...]:
    """Quantiles of the latencies in seconds: log-normal, cut off at SHORTEST and LONGEST."""
    normal = NormalDist()
    draws = (normal.inv_cdf((k + 0.5) / _QUANTILES) for k in range(_QUANTILES))
    return tuple(min(LONGEST, max(SHORTEST, MEDIAN * math.exp(SIGMA * x))) for x in draws)


def latency(draw: int) -> float:
    """Seconds that an answer takes."""
    return latencies()[draw % _QUANTILES]


def text_number(draw: int) -> int:
    """Which of TEXTS texts the answer has."""
    return draw // _QUANTILES % TEXTS


def text_of(number: int) -> str:
    """The text of an answer."""
    thing, place = _THINGS[number % 11], _PLACES[number // 11 % 8]
    return f"I go {place} and look at the {thing}, number {number}."


def observation(game: int, turn: int) -> str:
    """The text before the action of a turn; hardly any two are equal."""
    draw = random_bits("observation", game, turn)
    thing, place = _THINGS[draw % 11], _PLACES[draw // 11 % 8]
    seen = f"Turn {turn}. You see a {thing}, number {draw // 88 % 100_000}, to the {place}."
    return seen if turn else f"{RULES}\n{seen}"


def turns_of(game: int, longest: int) -> int:
    """The length of a game: between half of the longest and the longest."""
    return longest - random_bits("turns", game) % (longest // 2 + 1)


def reward_of(turns: int, last: str) -> float:
    """The reward of a game for its last action."""
    return random_bits("reward", turns, last) % 100 / 100


class ScaleEnv(MultistepEnv):
    """A walk: each turn says something new, the last action earns a number drawn from it."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        return {**task_data, "turn": 0}

    def _format_prompt(self, state: dict[str, Any], step: int) -> str:
        return observation(state["game"], state["turn"])

    def _step_episode(
        self, session_id: str, state: dict[str, Any], action: str
    ) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        turn = state["turn"] + 1
        done = turn == state["turns"]
        reward = reward_of(turn, action) if done else 0.0
        return {**state, "turn": turn}, reward, done, {}


register("benchmarks/Scale", ScaleEnv)


def rows_of(sessions: int, turns: int, first: int = 0) -> list[dict[str, Any]]:
    """Dataset rows of the games `first`, `first` + 1, …"""
    return [
        {
            "env_class_path": "benchmarks/Scale",
            "env_config": {"max_steps_per_episode": turns},
            "task_data": {"game": number, "turns": turns_of(number, turns)},
        }
        for number in range(first, first + sessions)
    ]


@cache
def tokenizer_of(name: str) -> Any:
    """A tokenizer: "tiny", "smollm2" or a model directory."""
    if name == "tiny":
        return common.tiny()[1]
    from transformers import AutoTokenizer

    folder = common.smollm2_folder() if name == "smollm2" else Path(name)
    return AutoTokenizer.from_pretrained(folder)


@cache
def answers_of(tokenizer: Any) -> list[tuple[str, list[int]]]:
    """Each answer as text and ids."""
    texts = [text_of(number) for number in range(TEXTS)]
    end = tokenizer.eos_token_id
    return [(text, [*tokenizer.encode(text, add_special_tokens=False), end]) for text in texts]


# -- the engine of drawn latencies --------------------------------------------------------------


class Window:
    """How many of an engine's places were busy, while all could be: from the moment at which
    `capacity` sessions had begun to the one at which the last of `sessions` began."""

    def __init__(self, capacity: int, sessions: int) -> None:
        self.capacity, self.sessions = capacity, sessions
        self._begun = 0
        self._opened = self._closed = 0.0
        self._begins, self._ends = array("d"), array("d")

    def request(self, begin: float, end: float, *, first: bool) -> None:
        """A request is in flight from `begin` to `end`; `first` of its session."""
        self._begins.append(begin)
        self._ends.append(end)
        if not first:
            return
        self._begun += 1
        if self._begun == self.capacity:
            self._opened = begin
        if self._begun == self.sessions:
            self._closed = begin

    def occupancy(self) -> float | None:
        """Requests in flight over capacity, the mean over time; None if no session ever waited."""
        seconds = self._closed - self._opened
        if self.sessions <= self.capacity or seconds <= 0:
            return None
        busy = sum(
            max(0.0, min(end, self._closed) - max(begin, self._opened))
            for begin, end in zip(self._begins, self._ends, strict=True)
        )
        return busy / (seconds * self.capacity)


class LatencyEngine:
    """Answers the k-th request of a game with a text and after a time of their own.

    `slower` multiplies the latencies. `own_cpu` is the thread's CPU seconds in these methods, which
    are the engine's and not the library's.
    """

    stats = EngineStats()

    def __init__(
        self, tokenizer: Any, capacity: int, sessions: int = 0, *, slower: float = 1.0
    ) -> None:
        self.tokenizer, self.capacity, self.slower = tokenizer, capacity, slower
        self.window = Window(capacity, sessions)
        self.own_cpu = 0.0
        self._open: list[tuple[float, int, int, str]] = []
        self._requests = 0
        self._answers = answers_of(tokenizer)

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Draw an answer and a latency for each request."""
        begin, now = time.thread_time(), time.perf_counter()
        for request in requests:
            draw = random_bits("request", request.session_id, len(request.messages) // 2)
            due = now + self.slower * latency(draw)
            self._requests += 1
            heapq.heappush(self._open, (due, self._requests, draw, request.session_id))
            self.window.request(now, due, first=len(request.messages) < 2)
        self.own_cpu += time.thread_time() - begin

    def poll(self) -> list[GenerationResult]:
        """Sleep until the next answer is due; return all that are."""
        begin, results = time.thread_time(), []
        if self._open:
            time.sleep(max(0.0, self._open[0][0] - time.perf_counter()))
            now = time.perf_counter()
            while self._open and self._open[0][0] <= now:
                results.append(self._answer(*heapq.heappop(self._open)[2:]))
        self.own_cpu += time.thread_time() - begin
        return results

    def _answer(self, draw: int, session_id: str) -> GenerationResult:
        """New integers and floats, as a real engine's: their memory counts."""
        text, ids = self._answers[text_number(draw)]
        first = -1.0 - draw % 1000 / 1000
        logprobs = tuple([first - k for k in range(len(ids))])
        return GenerationResult(session_id, tuple(array("i", ids)), logprobs, text)

    def cancel(self, session_ids: Sequence[str]) -> None:
        """Sessions of this game end by themselves."""

    def release(self, session_ids: Sequence[str]) -> None:
        """There is no cache to drop."""


# -- many sessions in one process ---------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """`sessions` games of at most `turns` turns, `at_once` at a time. `slower` multiplies the
    latencies; `traced` measures memory with tracemalloc instead of the resident set."""

    at_once: int
    sessions: int
    turns: int
    tokenizer: str
    slower: float = 1.0
    traced: bool = False


def measured(case: Case) -> dict[str, Any]:
    """The figures of a case, from a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--case", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{case} failed: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def played(case: Case) -> dict[str, Any]:
    """Play a case in this process."""
    tokenizer = tokenizer_of(case.tokenizer)
    warm = DirectOutputAgent(LatencyEngine(tokenizer, 64, slower=0), SamplingParams(64))
    run(rows_of(64, case.turns, 10**6), warm)
    engine = LatencyEngine(tokenizer, case.at_once, case.sessions, slower=case.slower)
    rows = rows_of(case.sessions, case.turns)
    memory = Memory(case.traced)
    start, cpu = time.perf_counter(), time.thread_time()
    batch = run(rows, DirectOutputAgent(engine, SamplingParams(64)))
    seconds, cpu = time.perf_counter() - start, time.thread_time() - cpu - engine.own_cpu
    grown = memory.grown()
    demand_right(batch, rows)
    steps = sum(row["task_data"]["turns"] for row in rows)
    return {
        "tokens_per_session": round(sum(len(r.token_ids) for r in batch.rows) / case.sessions),
        "overhead_us": 1e6 * cpu / steps,
        "engine_us": 1e6 * engine.own_cpu / steps,
        "kib_per_session": grown / case.sessions / 1024,
        "occupancy": engine.window.occupancy(),
        "steps_per_second": steps / seconds,
    }


class Memory:
    """The peak of this process's memory above what it held at construction."""

    def __init__(self, traced: bool) -> None:
        gc.collect()
        self._traced = traced
        if traced:
            tracemalloc.start()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self._before = pages * resource.getpagesize()

    def grown(self) -> int:
        """Bytes; with `traced`, those of Python's own allocations."""
        if self._traced:
            return tracemalloc.get_traced_memory()[1]
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._before


def demand_right(batch: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """End without figures unless every game was played to its end with the answers drawn for it."""
    for rollout, row in zip(batch.rollouts, rows, strict=True):
        turns = row["task_data"]["turns"]
        if rollout.failed:
            sys.exit(rollout.error)
        draws = (random_bits("request", rollout.session_id, turn) for turn in range(turns))
        expected = [text_of(text_number(draw)) for draw in draws]
        actions = [step.action for step in rollout.episodes[0].steps]
        if actions != expected or rollout.final_reward != reward_of(turns, actions[-1]):
            sys.exit(f"game {row['task_data']['game']} was not played as drawn: {actions}")


def sessions(args: argparse.Namespace) -> dict[str, Any]:
    """Cost per step and session, and the engine's occupancy, by sessions at once."""
    figures = {}
    for number in args.at_once:
        figures[number] = _many(number, args)
        print(f"{number} sessions at once: {figures[number]}", flush=True)
    least, most = (figures[number]["overhead_us"] for number in (args.at_once[0], args.at_once[-1]))
    mean = sum(latencies()) / _QUANTILES
    return {
        "mean_latency_ms": round(1000 * mean, 1),
        "sessions": figures,
        "overhead_growth": round(most / least, 2),
    }


def _many(number: int, args: argparse.Namespace) -> dict[str, Any]:
    play: Callable[[Case], dict[str, Any]] = played if args.quick else measured
    slower = 0.2 if args.quick else 1.0
    waiting = number + max(number // 4, args.waiting)
    case = Case(number, waiting, args.turns, args.tokenizer, slower)
    best = min((play(case) for _ in range(args.repeats)), key=lambda result: result["overhead_us"])
    full = Case(number, number, args.turns, args.tokenizer, slower=0)
    traced = Case(number, number, args.turns, args.tokenizer, slower=0, traced=True)
    names = ("overhead_us", "engine_us", "occupancy", "steps_per_second")
    return {
        **{name: _rounded(best[name]) for name in names},
        "kib_per_session": _rounded(play(full)["kib_per_session"]),
        "traced_kib_per_session": _rounded(
            play(traced)["kib_per_session"] if number == 1000 else None
        ),
        "tokens_per_session": best["tokens_per_session"],
    }


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    return round(value, 3 if abs(value) < 2 else 1)


# -- the same engine behind HTTP ----------------------------------------------------------------


def http(args: argparse.Namespace) -> dict[str, Any]:
    """CPU microseconds of this process, all threads, per step over HTTP, after a warm-up."""
    from agentsgym.generation.vllm.engine import VLLMEngine

    tokenizer = tokenizer_of(args.tokenizer)
    with server(args.tokenizer) as url:
        engine = VLLMEngine(url, tokenizer, capacity=args.http_at_once)
        agent = DirectOutputAgent(engine, SamplingParams(64))
        try:
            run(rows_of(args.http_at_once, args.turns, 10**6), agent)
            rows = rows_of(args.http_sessions, args.turns)
            start, cpu = time.perf_counter(), time.process_time()
            rollouts = run(rows, agent).rollouts
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        finally:
            engine.close()
    for rollout in rollouts:
        last = rollout.error or rollout.episodes[0].steps[-1].action
        if rollout.final_reward != reward_of(rollout.task_data["turns"], last):
            sys.exit(f"{rollout.session_id} was not played as drawn: {last}")
    steps = sum(len(rollout.episodes[0].steps) for rollout in rollouts)
    figures = {
        "http_sessions": args.http_at_once,
        "http_us": round(1e6 * cpu / steps, 1),
        "http_steps_per_second": round(steps / seconds),
    }
    print(f"over HTTP: {figures}", flush=True)
    return figures


@contextmanager
def server(tokenizer: str) -> Iterator[str]:
    """A server of drawn latencies in a process of its own, which ends with its standard input."""
    command = [sys.executable, "-W", "ignore", __file__, "--serve", tokenizer]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(60)


async def serve(tokenizer: Any) -> None:
    """Speak vLLM's completions API; an answer and its latency depend on the request's seed."""
    from aiohttp import web

    answers = [ids for _, ids in answers_of(tokenizer)]

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "scale", "max_model_len": 100_000}]})

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        if body["top_k"] == 1:  # the engine asks at which temperature log-probabilities are
            return web.json_response({"choices": [{"logprobs": {"token_logprobs": [0.0]}}]})
        draw = random_bits("request", body["seed"])
        await asyncio.sleep(latency(draw))
        ids = answers[text_number(draw)]
        if body["temperature"] != 1.0:  # the engine asks whether seeds are heeded
            ids = [draw % 100]
        first = -1.0 - draw % 1000 / 1000
        logprobs = {"token_logprobs": [first - k for k in range(len(ids))]}
        choice = {"token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})

    app = web.Application(client_max_size=2**26)
    app.router.add_get("/health", health)
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "sessions": sessions,
    "http": http,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--tokenizer", default="smollm2", help="tiny, smollm2 or a directory")
    parser.add_argument("--at-once", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--turns", type=int, default=20, help="of the longest game")
    parser.add_argument("--repeats", type=int, default=3, help="the best counts")
    parser.add_argument("--waiting", type=int, default=400, help="sessions that wait for a place")
    parser.add_argument("--http-at-once", type=int, default=256)
    parser.add_argument("--http-sessions", type=int, default=1024)
    parser.add_argument("--quick", action="store_true", help="a few seconds, figures mean nothing")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--serve", metavar="TOKENIZER", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    unknown = set(args.parts) - PARTS.keys()
    if unknown:
        parser.error(f"unknown parts {sorted(unknown)}; there are {', '.join(PARTS)}")
    if args.quick:
        args.tokenizer, args.at_once, args.turns = "tiny", [8, 16], 4
        args.repeats, args.waiting, args.http_at_once, args.http_sessions = 1, 8, 4, 8
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    if args.case:
        logging.disable(logging.WARNING)
        print(json.dumps(played(Case(**args.case))))
    elif args.serve:
        asyncio.run(serve(tokenizer_of(args.serve)))
    else:
        result: dict[str, Any] = {"device": common.device_name("cpu")}
        for name in args.parts or PARTS:
            result |= PARTS[name](args)
        common.finish(result)


if __name__ == "__main__":
    main()
