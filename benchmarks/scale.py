"""From a hundred sessions to ten thousand, without a model.

    python benchmarks/scale.py [sessions …] [--tokenizer smollm2]

An engine answers each request after a latency drawn for it (log-normal, 20 to 400 ms), so that all
time but its own is the library's. The parts, all of them by default:

sessions   100, 1,000 and 10,000 sessions at once in one process: CPU time of our thread per
           environment step without the engine's (`overhead_us`), memory per session
           (`kib_per_session`; `traced_kib_per_session` by tracemalloc), and requests in flight over
           the engine's capacity while sessions waited for a place (`occupancy`).

places     the same 1,000 and 10,000 sessions with an engine that answers 256 requests at a time and
           queues the rest, as vLLM does: share of the time in which all its places were taken
           (`all_taken`), and the mean share of them that were (`taken`), while sessions waited.
http       CPU time of our process per step (`http_us`), 256 sessions at once over an HTTP server
           in another process.
staleness  share of a step in which a learner waits for its batch, by `max_staleness`, if it learns
           as long as a synchronous generation is sampled (`learner_waits`), and if it learns only
           as long as sampling takes with all places always busy (`learner_waits_if_full`).
workers    1, 2 and 4 rollout workers on Ray with 64 places each, and an HTTP server that answers
           after such latencies: environment steps per second against one worker
           (`workers_over_one`), if all played the same rollouts.
verifiers  the same games and latencies in the loop of verifiers 0.4, 1,000 sessions at once:
           seconds on the wall and of CPU, theirs over ours. Its turns have no tokens, ours do.

The last line is one JSON object.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import scale_game as game
import scale_sessions
import scale_verifiers

SLOWER = 16
_BESIDE = Path(__file__).resolve().parents[1]


def sessions(args: argparse.Namespace) -> dict[str, Any]:
    """Cost per step and session, and the engine's occupancy, by sessions at once."""
    found = {}
    for number in args.at_once:
        found[number] = _many(number, args)
        print(f"{number} sessions at once: {found[number]}", flush=True)
    least, most = (found[number]["overhead_us"] for number in (args.at_once[0], args.at_once[-1]))
    return {
        "mean_latency_ms": round(1000 * game.mean_latency(), 1),
        "sessions": found,
        "overhead_growth": round(most / least, 2),
    }


def _many(number: int, args: argparse.Namespace) -> dict[str, Any]:
    play = scale_sessions.played if args.quick else scale_sessions.measured

    def case(sessions: int, **options: Any) -> dict[str, Any]:
        options.setdefault("slower", 0.2 if args.quick else 1.0)
        return play(scale_sessions.Case(number, sessions, args.turns, args.tokenizer, **options))

    waiting = number + max(number // 4, args.waiting)
    runs = [case(waiting) for _ in range(args.repeats)]
    best = min(runs, key=lambda figures: figures["overhead_us"])
    slower = case(waiting, slower=SLOWER)["occupancy"] if number >= 5000 else None
    return {
        **{name: _rounded(best[name]) for name in ("overhead_us", "engine_us", "occupancy")},
        "steps_per_second": round(best["steps_per_second"]),
        "kib_per_session": _rounded(case(number, slower=0)["kib_per_session"]),
        "traced_kib_per_session": _rounded(
            case(number, slower=0, traced=True)["kib_per_session"] if number == 1000 else None
        ),
        f"occupancy_latencies_times_{SLOWER}": _rounded(slower),
        "tokens_per_session": best["tokens_per_session"],
    }


def places(args: argparse.Namespace) -> dict[str, Any]:
    """How full an engine with a fixed number of places is kept."""
    play = scale_sessions.played if args.quick else scale_sessions.measured
    found = {}
    for number in args.queued:
        waiting = number + max(number // 4, args.waiting)
        case = scale_sessions.Case(
            number, waiting, args.turns, args.tokenizer, places=args.engine_places
        )
        figures = play(case)
        shares = figures["taken"] or (None, None)
        found[number] = {
            "all_taken": _rounded(shares[0]),
            "taken": _rounded(shares[1]),
            "steps_per_second": round(figures["steps_per_second"]),
        }
        print(f"{args.engine_places} places, {number} sessions: {found[number]}", flush=True)
    return {"engine_places": args.engine_places, "places_by_sessions": found}


def http(args: argparse.Namespace) -> dict[str, Any]:
    """CPU time of a step over HTTP."""
    import scale_http

    found = scale_http.measured(args.engine_places, args.http_sessions, args.turns, args.tokenizer)
    print(f"over HTTP: {found}", flush=True)
    return found


def staleness(args: argparse.Namespace) -> dict[str, Any]:
    """The learner's waiting time."""
    import scale_staleness

    plan = scale_staleness.Plan(
        args.generations, groups=16, size=4, turns=args.turns // 2, tokenizer=args.tokenizer
    )
    if args.quick:
        plan = replace(plan, groups=2, size=2, slower=0.1)
    found = scale_staleness.compared(plan)
    print(f"sampling ahead of learning: {found}", flush=True)
    return found


def workers(args: argparse.Namespace) -> dict[str, Any]:
    """Throughput by number of rollout workers."""
    import scale_workers

    found = scale_workers.compared(
        args.workers, args.worker_sessions, args.turns, args.worker_places, args.tokenizer
    )
    print(f"rollout workers: {found}", flush=True)
    return found


def verifiers(args: argparse.Namespace) -> dict[str, Any]:
    """Against another loop."""
    python = args.verifiers_python
    found = scale_verifiers.compared(args.sessions, args.verifiers_turns, args.tokenizer, python)
    print(f"against verifiers: {found}", flush=True)
    return found


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    return round(value, 3 if abs(value) < 2 else 1)


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "sessions": sessions,
    "places": places,
    "http": http,
    "staleness": staleness,
    "workers": workers,
    "verifiers": verifiers,
}


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--tokenizer", default="smollm2", help="tiny, smollm2 or a directory")
    parser.add_argument("--at-once", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--turns", type=int, default=20, help="of the longest game")
    parser.add_argument("--repeats", type=int, default=3, help="the best counts")
    parser.add_argument("--waiting", type=int, default=400, help="sessions that wait for a place")
    parser.add_argument("--engine-places", type=int, default=256, help="of parts places and http")
    parser.add_argument("--queued", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--http-sessions", type=int, default=1024)
    parser.add_argument("--generations", type=int, default=12, help="that a learner learns from")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--worker-places", type=int, default=64)
    parser.add_argument("--worker-sessions", type=int, default=768)
    parser.add_argument("--sessions", type=int, default=1000, help="at once, against verifiers")
    parser.add_argument("--verifiers-turns", type=int, default=8)
    parser.add_argument(
        "--verifiers-python", default=str(_BESIDE / ".venv-verifiers" / "bin" / "python")
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds, figures mean nothing")
    args = parser.parse_args(given)
    unknown = set(args.parts) - PARTS.keys()
    if unknown:
        parser.error(f"unknown parts {sorted(unknown)}; there are {', '.join(PARTS)}")
    if args.quick:
        args.tokenizer, args.at_once, args.turns = "tiny", [8, 16], 4
        args.repeats, args.waiting, args.generations = 1, 8, 5
        args.engine_places, args.queued, args.http_sessions = 4, [8], 8
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    result: dict[str, Any] = {"device": common.device_name("cpu")}
    for name in args.parts or PARTS:
        result |= PARTS[name](args)
    common.finish(result)


if __name__ == "__main__":
    main()
