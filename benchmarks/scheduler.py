"""What the scheduler gains, and what the framework costs.

    python benchmarks/scheduler.py [--threads N] [--device cuda]

1. Useful tokens per second with episodes of 12 to 50 steps (ALFWorld's span, uniform, drawn once
   from a seed) against the same engine under a lock-step scheduler: batches of as many sessions as
   the engine holds; a turn ends when its last answer is there, a batch when its last episode is
   over, and until then finished episodes keep being generated (`ours_over_lockstep`) or leave
   their places empty (`ours_over_lockstep_skipping`). All actions have 8 tokens; with
   `ours_over_lockstep_varied` they have 4 to 12, so that turns have slowest members as well.
2. Time of the framework per environment step with an agent that answers at once, against verifiers
   in its own virtual environment, which this script makes (`ours_over_verifiers`).

The last line is one JSON object.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import common
import torch
import verifiers_game as game
from common import NEW_TOKENS, Played

from agentsgym import MultistepEnv, register
from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import run
from agentsgym.types import (
    EngineStats,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
)

VERIFIERS = "verifiers==0.3.1"  # the newest with MultiTurnEnv, which plays in process
SHORTEST, LONGEST = 12, 50
VARIED = (4, 12)


# -- against lock-step --------------------------------------------------------------------------


class VariedEngine:
    """An engine whose actions have lengths of their own: drawn for the k-th action of a game."""

    def __init__(self, engine: EmbeddedEngine, lengths: tuple[int, int]) -> None:
        self.engine, self.lengths = engine, lengths
        self.tokenizer, self.capacity = engine.tokenizer, engine.capacity
        self.poll, self.cancel, self.release = engine.poll, engine.cancel, engine.release
        self.asked: dict[int | None, int] = {}

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        self.engine.submit([self._sized(request) for request in requests])

    def _sized(self, request: GenerationRequest) -> GenerationRequest:
        number = self.asked.get(request.group, 0)
        self.asked[request.group] = number + 1
        drawn = random.Random(f"{request.group}/{number}").randint(*self.lengths)
        return replace(request, sampling=replace(request.sampling, max_tokens=drawn))

    def reset(self) -> None:
        self.asked.clear()
        self.engine.reset()

    @property
    def stats(self) -> EngineStats:
        return self.engine.stats


class Bench:
    """Ragged games on one engine."""

    def __init__(self, sessions: int, capacity: int, longest: int, device: str) -> None:
        model, self.tokenizer = common.tiny()
        rng = random.Random(0)
        shortest = min(SHORTEST, longest // 2)
        lengths = [rng.randint(shortest, longest) for _ in range(sessions)]
        games = common.make_games(self.tokenizer, sessions, longest)
        self.games = [texts[:n] for texts, n in zip(games, lengths, strict=True)]
        self.device, self.capacity = device, capacity
        engine = EmbeddedEngine(model.to(device), self.tokenizer, capacity=capacity)
        self.engine = VariedEngine(engine, (NEW_TOKENS, NEW_TOKENS))
        self.dtype = model.dtype
        print(f"{sessions} episodes of {min(lengths)} to {max(lengths)} steps, ", end="")
        print(f"mean {sum(lengths) / sessions:.1f}; {capacity} places")

    def ours(self) -> Played:
        agent = DirectOutputAgent(self.engine, SamplingParams(NEW_TOKENS))
        rows = common.rows_of(self.games)
        self.engine.reset()
        watch = common.Stopwatch(self.device)
        batch = run(rows, agent, envs=EnvPool(self.tokenizer))
        seconds, cpu = watch.read()
        failed = [rollout.error for rollout in batch.rollouts if rollout.failed]
        if failed:
            raise SystemExit(failed[0])
        played = [(list(r.token_ids), list(r.agent_token_mask)) for r in batch.rows]
        return Played(seconds, played, cpu)

    def lockstep(self, *, skipping: bool) -> Played:
        self.engine.reset()
        watch = common.Stopwatch(self.device)
        rows: list[tuple[list[int], list[int]]] = []
        for first in range(0, len(self.games), self.capacity):
            rows += self._batch(first, self.games[first : first + self.capacity], skipping)
        seconds, cpu = watch.read()
        return Played(seconds, rows, cpu)

    def _batch(
        self, first: int, games: Sequence[list[str]], skipping: bool
    ) -> list[tuple[list[int], list[int]]]:
        """All games of a batch, turn by turn; rows hold the useful tokens only."""
        tokenizer = self.tokenizer
        rows = []
        for texts in games:
            ids = common.opening_ids(tokenizer, texts[0])
            rows.append((ids, [0] * len(ids)))
        contexts = [list(ids) for ids, _ in rows]
        for turn in range(max(map(len, games))):
            playing = [i for i in range(len(games)) if turn < len(games[i]) or not skipping]
            for i, ids in self._turn(first, playing, contexts).items():
                texts = games[i]
                text = texts[turn + 1] if turn + 1 < len(texts) else texts[0]
                seen = common.encode(tokenizer, common.between(tokenizer, text))
                contexts[i] += [*ids, *seen]
                if turn < len(texts):
                    rows[i][0].extend(ids)
                    rows[i][1].extend([1] * len(ids))
                if turn + 1 < len(texts):
                    rows[i][0].extend(seen)
                    rows[i][1].extend([0] * len(seen))
        self.engine.release([str(i) for i in range(len(games))])
        return rows

    def _turn(
        self, first: int, playing: Sequence[int], contexts: Sequence[list[int]]
    ) -> dict[int, tuple[int, ...]]:
        sampling = SamplingParams(NEW_TOKENS)
        self.engine.submit(
            [
                GenerationRequest(str(i), contexts[i], sampling, first + i, group=first + i)
                for i in playing
            ]
        )
        answers: dict[int, tuple[int, ...]] = {}
        while results := self.engine.poll():
            answers |= {int(result.session_id): result.token_ids for result in results}
        return answers


def against_lockstep(bench: Bench, repeats: int, suffix: str = "") -> dict[str, float]:
    """Ratios of seconds for the same useful work."""
    sides: dict[str, Callable[[], Played]] = {
        "ours": bench.ours,
        "lockstep": lambda: bench.lockstep(skipping=False),
        "skipping": lambda: bench.lockstep(skipping=True),
    }
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    cpu: dict[str, list[float]] = {side: [] for side in sides}
    played: dict[str, Played] = {}
    for _ in range(repeats):
        for side, play in sides.items():
            played[side] = play()
            seconds[side].append(played[side].seconds)
            cpu[side].append(played[side].cpu_seconds)
            common.describe(side, played[side], bench.dtype)
    for side in ("lockstep", "skipping"):
        common.demand_equal(played["ours"].work, played[side].work, "useful turns and tokens")
    medians = {side: common.median(values) for side, values in seconds.items()}
    own = {side: common.median(values) for side, values in cpu.items()}
    ratios = {}
    for other in ("lockstep", "skipping"):
        name = "ours_over_lockstep" + ("_skipping" if other == "skipping" else "") + suffix
        ratios[name] = round(medians[other] / medians["ours"], 2)
        ratios[f"cpu_{name}"] = round(own[other] / own["ours"], 2)
    speed = round(played["ours"].sampled / medians["ours"])
    return {**ratios, f"ours_useful_tokens_per_second{suffix}": speed}


# -- against verifiers --------------------------------------------------------------------------


class LineEnv(MultistepEnv):
    """The toy game that verifiers plays: a line before each action, nothing else."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> int:
        return 0

    def _format_prompt(self, state: int, step: int) -> str:
        return game.LINE.format(state)

    def _step_episode(
        self, session_id: str, state: int, action: str
    ) -> tuple[int, float, bool, dict[str, Any]]:
        return state + 1, 0.0, False, {}


register("benchmarks/Line", LineEnv)


class InstantAgent:
    """Answers at once, in words."""

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        return game.ANSWER, None


class InstantEngine:
    """Answers at once, in tokens; the scheduler and the transcript do all that they always do."""

    capacity = 256

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.ids = tuple(common.encode(tokenizer, game.ANSWER))
        self.logprobs = (-1.0,) * len(self.ids)
        self.ready: list[GenerationResult] = []

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        self.ready += [
            GenerationResult(r.session_id, self.ids, self.logprobs, game.ANSWER) for r in requests
        ]

    def poll(self) -> list[GenerationResult]:
        results, self.ready = self.ready, []
        return results

    def cancel(self, session_ids: Sequence[str]) -> None: ...

    def release(self, session_ids: Sequence[str]) -> None: ...

    @property
    def stats(self) -> EngineStats:
        return EngineStats()


def our_overhead(games: int, steps: int, tokenizer: Any | None) -> float:
    """Seconds per environment step, with exact token records where there is a tokenizer."""
    row = {
        "env_class_path": "benchmarks/Line",
        "env_config": {"max_steps_per_episode": steps},
        "task_data": {},
    }
    agent: Any = InstantAgent()
    if tokenizer is not None:
        agent = DirectOutputAgent(InstantEngine(tokenizer), SamplingParams(64))
    start = time.perf_counter()
    batch = run([row] * games, agent)
    seconds = time.perf_counter() - start
    played = sum(len(episode.steps) for r in batch.rollouts for episode in r.episodes)
    common.demand_equal((played,), (games * steps,), "environment steps")
    return seconds / played


def verifiers_overhead(games: int, steps: int, repeats: int, *options: str) -> list[float]:
    """Seconds per environment step of verifiers, in its own virtual environment."""
    command = [str(_verifiers_python()), game.__file__.replace("_game", "_side")]
    command += [*map(str, (games, steps, repeats)), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"verifiers failed: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    common.demand_equal((games * steps,), (answer["steps"],), "environment steps")
    return [seconds / answer["steps"] for seconds in answer["seconds"]]


def _verifiers_python() -> Any:
    """Python of the virtual environment with verifiers; made on first use."""
    home = common.CACHE / VERIFIERS.replace("==", "-")
    python = home / "bin" / "python"
    if not (home / "made").exists():
        print(f"making a virtual environment with {VERIFIERS} in {home}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", VERIFIERS]
        subprocess.run([*install, "--disable-pip-version-check"], check=True)
        (home / "made").touch()
    return python


def against_verifiers(games: int, steps: int, repeats: int) -> dict[str, float]:
    """Like against like: words only, and with token records."""
    _, tokenizer = common.tiny()
    ours = {"words": [], "tokens": []}  # type: dict[str, list[float]]
    theirs = {"words": [], "tokens": []}  # type: dict[str, list[float]]
    for kind, chosen, options in (("words", None, ()), ("tokens", tokenizer, ("--tokens",))):
        our_overhead(2, steps, chosen)
        for _ in range(2):
            ours[kind] += [our_overhead(games, steps, chosen) for _ in range(repeats)]
            theirs[kind] += verifiers_overhead(games, steps, repeats, *options)
    micro = {
        f"{side}_{kind}_us": round(1e6 * common.median(values[kind]), 1)
        for side, values in (("ours", ours), ("verifiers", theirs))
        for kind in ("words", "tokens")
    }
    print(f"framework per environment step, {games} games of {steps} steps, microseconds: {micro}")
    return {
        "ours_over_verifiers": round(micro["verifiers_words_us"] / micro["ours_words_us"], 1),
        "ours_over_verifiers_tokens": round(
            micro["verifiers_tokens_us"] / micro["ours_tokens_us"], 1
        ),
        **micro,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_common_arguments(parser)
    parser.add_argument("--sessions", type=int, default=256)
    parser.add_argument("--capacity", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--no-verifiers", action="store_true", help="skip the second part")
    args = parser.parse_args()
    common.set_up(args)
    longest, games, steps = LONGEST, 64, 30
    if args.quick:
        args.sessions, args.capacity, args.repeats, longest = 12, 4, 1, 6
        args.no_verifiers = True
    result: dict[str, Any] = {"device": common.device_name(args.device)}
    print(f"{result['device']}; torch {torch.__version__}")
    bench = Bench(args.sessions, args.capacity, longest, args.device)
    result |= against_lockstep(bench, args.repeats)
    print("actions of 4 to 12 tokens")
    bench.engine.lengths = VARIED
    result |= against_lockstep(bench, args.repeats, "_varied")
    result |= (
        {"ours_over_verifiers": None}
        if args.no_verifiers
        else against_verifiers(games, steps, args.repeats)
    )
    common.finish(result)


if __name__ == "__main__":
    main()
