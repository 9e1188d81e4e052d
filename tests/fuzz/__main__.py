"""`python -m fuzz [--cases N] [--seed S] [AREA ...]`: one line of JSON with what was counted."""

import argparse
import faulthandler
import json
import multiprocessing
import sys
import time
from typing import Any

import psutil

from fuzz.areas import AREAS
from fuzz.oracle import Area, Found, explore

_STUCK_SECONDS = 1500.0  # for what hangs in C code, where no signal handler runs


def main() -> int:
    """Search all areas; the status is 0 if nothing failed."""
    options = _options()
    areas = [area for area in AREAS if not options.areas or area.name in options.areas]
    started = time.monotonic()
    shares = _shares(areas, options.cases)
    found = {area.name: search_apart(area, shares[area.name], options.seed) for area in areas}
    report = {
        name: {"tried": f.tried, "worked": f.worked, "refused": f.refused, "failed": f.failed}
        for name, f in found.items()
    }
    for f in found.values():
        for failure in f.failures.values():
            sys.stderr.write(f"\n{failure}\n")
    left = [child for child in psutil.Process().children(recursive=True) if not _is_tracker(child)]
    total = {key: sum(area[key] for area in report.values()) for key in next(iter(report.values()))}
    seconds = round(time.monotonic() - started, 1)
    line = {"areas": report, **total, "processes_left": len(left), "seconds": seconds}
    sys.stdout.write(json.dumps(line) + "\n")
    return int(bool(total["failed"] or left))


def search_apart(area: Area, cases: int, seed: int) -> Found:
    """Search an area in a process of its own, so that one that dies is a failure of its area."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_search, args=(area.name, cases, seed, theirs))
    process.start()
    theirs.close()
    try:
        found: Found = ours.recv()
    except EOFError:
        process.join()
        death = f"{area.name}: its process ended with {process.exitcode}"
        found = Found(cases, failed=cases, failures={"death": death})
    process.join(10)
    return found


def _search(name: str, cases: int, seed: int, reply: Any) -> None:
    faulthandler.dump_traceback_later(_STUCK_SECONDS, repeat=False, exit=True)
    area = next(area for area in AREAS if area.name == name)
    sys.stderr.write(f"{name}: {cases} cases\n")
    reply.send(explore(area, cases, seed))


def _is_tracker(process: psutil.Process) -> bool:
    """Whether this is the helper process that Python's own multiprocessing starts."""
    return any("resource_tracker" in word for word in process.cmdline())


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("areas", nargs="*", metavar="AREA")
    return parser.parse_args()


def _shares(areas: list[Area], cases: int) -> dict[str, int]:
    """Cases of each area: all of them together, in inverse proportion to what one costs."""
    whole = sum(1 / area.cost for area in areas)
    shares = {area.name: int(cases / area.cost / whole) for area in areas}
    shares[areas[0].name] += cases - sum(shares.values())
    return shares


if __name__ == "__main__":
    sys.exit(main())
