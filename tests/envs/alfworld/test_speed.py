"""The speed patch changes nothing but the time."""

import hashlib
import random
import time

import pytest

from agentsgym.envs.alfworld import engine
from agentsgym.envs.alfworld.engine import HouseholdGame

LEAST = 15


def play(fast, tasks, steps):
    """A hash of the transcripts of random and of planned games, and the CPU seconds per step."""
    digest, seconds, count = hashlib.sha256(), 0.0, 0
    for kind, task in tasks.items():
        rng = random.Random(kind)
        game, command = HouseholdGame(task["game_file"], fast=fast), ""
        for _ in range(steps):
            digest.update(repr((command, game.text, game.commands, game.anchor)).encode())
            if game.won:
                break
            command = rng.choice([*game.commands, *_useful(game.commands) * 5, "juggle"])
            began = time.process_time()
            game.step(command)
            seconds += time.process_time() - began
            count += 1
    return digest.hexdigest(), seconds / count


def _useful(commands):
    return [c for c in commands if c.split()[0] not in ("go", "look", "help", "inventory")]


def test_same_transcript_and_at_least_fifteen_times_faster(tasks):
    play(True, tasks, 12)
    fast_hash, fast = play(True, tasks, 12)
    stock_hash, slow = play(False, tasks, 12)
    assert fast_hash == stock_hash
    assert slow / fast >= LEAST, f"{1 / fast:.0f} steps/s against {1 / slow:.0f}"


def test_an_unknown_version_runs_unpatched_with_a_warning(monkeypatch):
    monkeypatch.setattr(engine, "KNOWN_VERSIONS", {"textworld": {"0.1"}})
    with pytest.warns(RuntimeWarning, match=r"does not support textworld 1\.\d"):
        assert engine.speed_patch() == []
