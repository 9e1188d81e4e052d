"""Each area is searched in a process of its own, so that one that dies is a failure of its area."""

import faulthandler
import multiprocessing
import sys
from typing import Any

from fuzz.oracle import Area, Found, explore

_STUCK_SECONDS = 1500.0  # for what hangs in C code, where no signal handler runs


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
    from fuzz.areas import AREAS

    area = next(area for area in AREAS if area.name == name)
    sys.stderr.write(f"{name}: {cases} cases\n")
    reply.send(explore(area, cases, seed))
