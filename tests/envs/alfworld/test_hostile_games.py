"""Games and tasks of strangers: no code, no path and no number of theirs does harm."""

import json
from pathlib import Path

import pytest

import agentsgym
from agentsgym import ScriptedAgent
from agentsgym.envs.alfworld.engine import HouseholdGame
from agentsgym.envs.alfworld.safety import RefusedGame, compiled
from agentsgym.rollout import run

AGENT = ScriptedAgent(["look", "help"])
OVERVIEW = "{r.indefinite} {r.name or r.id}"


class Thing:
    """As the engine's EntityInfo."""

    def __init__(self, **known):
        self.__dict__.update(known)


APPLE = Thing(id="apple_1", name="apple 1", indefinite="a", definite="the", desc=None)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("o.name", "apple 1"),
        ("o.desc or o.id", "apple_1"),
        ("o.indefinite + ' ' + o.name", "a apple 1"),
        ("o.desc or 'no or ' + o.id", "no or apple_1"),
        ("o", APPLE),
    ],
)
def test_expressions_have_pythons_values(expression, value):
    assert compiled(expression)({"o": APPLE}) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "o.__class__",
        "o.name.upper()",
        "o.name * 1000000000",
        "context",
        "'a'" + " + 'a'" * 500,
        "(" * 400 + ")" * 400,
        "1 + 1",
        "o.name or",
        "not o.desc",
        "o.name if o.desc else o.id",
        "o.name; o.id",
    ],
)
def test_anything_else_is_refused(expression):
    with pytest.raises(RefusedGame):
        compiled(expression)({"o": APPLE})


def changed(task, folder, part, old, new):
    """A copy of a task's game with a change in one of its parts, as a task."""
    game = json.loads(Path(task["game_file"]).read_text())
    assert old in game[part]
    folder.mkdir(exist_ok=True)
    file = folder / "game.tw-pddl"
    file.write_text(json.dumps({**game, part: game[part].replace(old, new)}))
    return {"game_file": str(file)}


@pytest.mark.parametrize(
    ("part", "old"),
    [
        (OVERVIEW, OVERVIEW),
        ('template :: "inventory"', "inventory"),
        ("You heat the {o.name} using the {r.name}.", "{r.name}"),
    ],
    ids=["introduction", "command", "feedback"],
)
def test_code_in_a_games_grammar_is_not_run(task, tmp_path, part, old):
    mark = tmp_path / "was-here"
    code = f"{{__import__('pathlib').Path('{mark}').touch()}}"
    evil = changed(task, tmp_path / "games", "grammar", part, part.replace(old, code))
    env = agentsgym.make("ALFWorld", None, {"workers": 0}, trust=True)
    batch = env.run_trial([evil, task], AGENT)
    assert not mark.exists()
    assert "RefusedGame" in batch.rollouts[0].error
    assert "may only join texts" in batch.rollouts[0].error
    assert batch.rollouts[1].error is None


def test_names_that_would_overflow_the_planner_are_refused(task, tmp_path):
    long = changed(task, tmp_path / "games", "pddl_problem", "_bar_", "_bar_" + "x" * 2000)
    with pytest.raises(RefusedGame, match="1000 characters"):
        HouseholdGame(long["game_file"])


def test_names_that_would_be_read_as_formats_are_refused(task, tmp_path):
    wide = changed(task, tmp_path / "games", "pddl_problem", "agent1", "{agent1:>999999999}")
    with pytest.raises(RefusedGame, match="braces"):
        HouseholdGame(wide["game_file"])


@pytest.mark.parametrize("workers", [0, 1], ids=["here", "in a worker"])
def test_a_row_names_no_game_outside_the_allowed_directories(task, tmp_path, workers, monkeypatch):
    games = tmp_path / "games"
    outside = changed(task, games, "grammar", OVERVIEW, OVERVIEW)["game_file"]
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.setenv("ALFWORLD_DATA", str(inside))
    (inside / "link").symlink_to(games)
    tasks = [
        {"game_file": path}
        for path in (outside, f"{inside}/../games/game.tw-pddl", f"{inside}/link/game.tw-pddl")
    ]
    row = {"env_class_path": "ALFWorld", "env_config": {"workers": workers}}
    for rollout in run([{**row, "task_data": data} for data in tasks], AGENT).rollouts:
        assert "PathRefused" in rollout.error
    env = agentsgym.make("ALFWorld", None, row["env_config"])  # its caller names the files
    assert env.run_trial(tasks, AGENT)["step_rewards"] == [[0.0] * 50] * 3


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": "../../../out"},
        {"seed": 10**30},
        {"split": "../../out"},
        {"task_type": "../../out"},
    ],
    ids=repr,
)
def test_a_task_makes_no_folder_where_it_likes(task, tmp_path, changes):
    cache = tmp_path / "cache"
    cache.mkdir()
    hostile = {**task, "game_file": str(tmp_path / "made" / "game.tw-pddl"), **changes}
    env = agentsgym.make("ALFWorld", None, {"workers": 0, "cache_dir": str(cache)})
    with pytest.raises(ValueError, match=f"'{next(iter(changes))}' must be"):
        env.game_file(hostile)
    assert list(tmp_path.iterdir()) == [cache] and not list(cache.iterdir())


def test_linked_official_data_may_be_named(task, tmp_path, monkeypatch):
    real = tmp_path / "disk" / "games" / "pick_and_place_simple-X" / "trial"
    real.mkdir(parents=True)
    (real / "game.tw-pddl").write_bytes(Path(task["game_file"]).read_bytes())
    data = tmp_path / "data" / "json_2.1.1"
    data.mkdir(parents=True)
    (data / "train").symlink_to(tmp_path / "disk" / "games")
    monkeypatch.setenv("ALFWORLD_DATA", str(data.parent))
    env = agentsgym.make("ALFWorld", None, {"workers": 0})
    row = env.get_train_dataset()[0]["task_data"]
    assert Path(env.game_file(row)) == real / "game.tw-pddl"
