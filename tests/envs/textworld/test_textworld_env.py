"""TextWorld games by seed: made by tw-make, played, won, refused."""

import os
from pathlib import Path

import pytest

import agentsgym
from agentsgym import ScriptedAgent
from agentsgym.envs.command_game import GenerationFailed
from agentsgym.envs.textworld import games
from agentsgym.envs.textworld.env import tidy
from agentsgym.envs.textworld.games import Recipe, ensure_games, fingerprint

RECIPE = Recipe(3, 6, 4)


@pytest.fixture
def make(cache_dir):
    def made(tokenizer=None, **config):
        given = {"cache_dir": cache_dir, "workers": 0, **config}
        return agentsgym.make("TextWorld", tokenizer, given)

    return made


def test_a_game_is_made_and_won_by_its_walkthrough(make):
    env = make()
    commands = env.walkthrough({"seed": 1})
    batch = env.run_trial([{"seed": 1}], ScriptedAgent(commands))
    episode = batch.rollouts[0].episodes[0]
    assert episode.win and episode.stop_reason == "win"
    assert episode.reward == pytest.approx(env.reference_score({"seed": 1})) == 1.0
    assert [step.malformed for step in episode.steps] == [False] * len(commands)


def test_what_steps_earn(make):
    commands = make().walkthrough({"seed": 1})
    script = ScriptedAgent(["inventory", commands[0], "look", *commands[1:]])
    score = make().run_trial([{"seed": 1}], script)["step_rewards"][0]
    progress = make(reward="progress").run_trial([{"seed": 1}], script)["step_rewards"][0]
    assert score == [0.0] * (len(commands) + 1) + [1.0]
    assert progress == [0.0, 1.0, 0.0] + [1.0] * (len(commands) - 1)


def test_what_is_not_admissible_never_reaches_the_engine(make):
    env = make(error_allowance=9)
    commands = env.walkthrough({"seed": 1})
    hostile = ["quit", "restart", "save", "undo", "", "look. inventory", "x" * 50_000]
    batch = env.run_trial([{"seed": 1}], ScriptedAgent([*hostile, *commands]))
    episode = batch.rollouts[0].episodes[0]
    assert [step.malformed for step in episode.steps[: len(hostile)]] == [True] * len(hostile)
    assert episode.messages[2]["content"].startswith("You can't do that now.")
    assert episode.reward == 1.0


def test_prompts_hold_the_story_and_nothing_else(make):
    batch = make().run_trial([{"seed": 1}], ScriptedAgent(["look", "juggle"]))
    messages = batch["final_completion_messages"][0]
    first, second = messages[0]["content"], messages[2]["content"]
    assert first.startswith("You are in a text adventure.")
    for text in (first, second):
        assert "$$" not in text and "\n>" not in text and "\n\n\n" not in text
        assert "Admissible commands: " in text
    assert tidy("\n\nYou see.\n\n\n\n>    -= Hall =-0/1") == "You see."


def test_sessions_side_by_side_and_in_workers_are_as_alone(make):
    tasks = [{"seed": seed} for seed in (0, 1, 1)]
    script = ScriptedAgent(["look", "inventory", "look", "juggle"])
    here = make().run_trial(tasks, script)
    there = make(workers=1).run_trial(tasks, script)
    assert here["final_completion_messages"] == there["final_completion_messages"]
    assert [s.info for r in here.rollouts for s in r.episodes[0].steps] == [
        s.info for r in there.rollouts for s in r.episodes[0].steps
    ]
    assert here["final_completion_messages"][1] == here["final_completion_messages"][2]


def test_the_walkthrough_as_an_agent(make):
    for agent in (make().optimal_agent(), make().teacher_agent(seed=1)):
        batch = make().run_trial([{"seed": 0}, {"seed": 1}], agent, 2)
        assert batch["final_rewards"] == [1.0] * 4, [r.error for r in batch.rollouts]


def test_training_and_evaluation_games_differ(make, cache_dir):
    env = make(train_tasks=2, eval_tasks=1)
    train = [row["task_data"]["seed"] for row in env.get_train_dataset()]
    held_out = [row["task_data"]["seed"] for row in env.get_eval_dataset()]
    assert (train, held_out) == ([0, 1], [2])
    files = ensure_games(Path(cache_dir), RECIPE, [0, 1, 2])
    assert len({fingerprint(file) for file in files}) == 3


def test_the_same_seed_makes_the_same_game_whatever_the_hash_seed(tmp_path, monkeypatch, cache_dir):
    """Also in a folder that is named relative to the working directory."""
    monkeypatch.setitem(os.environ, "PYTHONHASHSEED", "4")
    monkeypatch.chdir(tmp_path)
    folders = (Path(cache_dir), Path("games"))
    marks = [fingerprint(ensure_games(f, RECIPE, [1])[0]) for f in folders]
    assert marks[0] == marks[1]


def test_tasks_are_checked(make):
    tasks = [{}, *({"seed": seed} for seed in (-1, True, "../../x", 2**40, 1.0))]
    batch = make().run_trial(tasks, ScriptedAgent(["x"]))
    assert all("needs a 'seed' (from 0 to 2147483647)" in r.error for r in batch.rollouts)


def test_a_game_that_takes_for_ever_to_make_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(games, "_SECONDS", 0.01)
    monkeypatch.setattr(games, "_SECONDS_EACH", 0.0)
    with pytest.raises(GenerationFailed, match=r"more than 0\.01 seconds; choose smaller games"):
        ensure_games(tmp_path, RECIPE, [1])
