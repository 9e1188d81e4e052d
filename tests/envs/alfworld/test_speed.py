"""The speed patch changes nothing but the time."""

import random

import pytest

from agentsgym.envs.alfworld import engine
from agentsgym.envs.alfworld.engine import HouseholdGame

KINDS = ("look_at_obj_in_light", "pick_heat_then_place_in_recep", "pick_two_obj_and_place")


def transcript(fast, task):
    """What is said in a random game, mostly of commands that change something."""
    rng, said, command = random.Random(0), [], ""
    game = HouseholdGame(task["game_file"], fast=fast)
    for _ in range(10):
        said.append((command, game.text, game.commands, game.anchor))
        if game.won:
            break
        useful = [c for c in game.commands if c.split()[0] not in ("go", "look", "help")]
        command = rng.choice([*game.commands, *useful * 5, "juggle"])
        game.step(command)
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_the_patched_engine_says_the_same(tasks, kind):
    assert transcript(True, tasks[kind]) == transcript(False, tasks[kind])


def test_an_unknown_version_runs_unpatched_with_a_warning(monkeypatch):
    monkeypatch.setattr(engine, "KNOWN_VERSIONS", {"textworld": {"0.1"}})
    with pytest.warns(RuntimeWarning, match=r"does not support textworld 1\.\d"):
        assert engine.speed_patch() == []
