"""The check that the environment neither changes nor uses the process's global random state."""

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from agentsgym.checks.context import Context
from agentsgym.checks.players import RandomPlayer
from agentsgym.checks.playing import play_alone
from agentsgym.checks.records import difference
from agentsgym.checks.report import Finding

_NAME = "global randomness"


def global_randomness(context: Context) -> Finding:
    """Playing neither changes the global random state nor depends on it."""
    tasks = context.tasks(2, most=4)
    player = RandomPlayer(context.seed)
    kept = {name: read() for name, (read, _) in _generators().items()}
    try:
        records = []
        for seed in (1, 2):
            _seed_all(seed)
            before = {name: read() for name, (read, _) in _generators().items()}
            records.append(play_alone(context.make(None), tasks, player))
            changed = [
                name for name, (read, _) in _generators().items() if _differ(before[name], read())
            ]
            if changed:
                return Finding(_NAME, False, f"playing changed the state of {', '.join(changed)}")
    finally:
        for name, (_, write) in _generators().items():
            if name in kept:
                write(kept[name])
    for one, other in zip(*records, strict=True):
        parted = difference(one, other)
        if parted:
            return Finding(_NAME, False, f"another global seed changes the episode: {parted}")
    return Finding(_NAME, True, f"{', '.join(_generators())}: unchanged and not used")


def _generators() -> dict[str, tuple[Callable[[], Any], Callable[[Any], None]]]:
    """Functions that read and set each global generator that is loaded."""
    known: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        "random": (random.getstate, random.setstate),
        "numpy.random": (np.random.get_state, np.random.set_state),
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        known["torch"] = (torch.get_rng_state, torch.set_rng_state)
    return known


def _seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(seed)


def _differ(before: Any, after: Any) -> bool:
    if isinstance(before, tuple):
        pairs = zip(before, after, strict=True)
        return any(not np.array_equal(np.asarray(a), np.asarray(b)) for a, b in _flat(pairs))
    return not bool((before == after).all())


def _flat(pairs: Any) -> list[tuple[Any, Any]]:
    return [(a if a is not None else 0, b if b is not None else 0) for a, b in pairs]
