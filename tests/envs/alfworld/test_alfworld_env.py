"""ALFWorld as an environment: prompts, commands, rewards, masks, tasks."""

import json
import shutil
from pathlib import Path

import pytest

import agentsgym
from agentsgym import ScriptedAgent
from agentsgym.envs import ConfigError
from agentsgym.envs.alfworld.engine import NOTHING, HouseholdGame
from agentsgym.envs.alfworld.env import NoGames
from agentsgym.envs.command_game import ExpertAgent

HERE = {"workers": 0}


def make(tokenizer=None, **config):
    return agentsgym.make("ALFWorld", tokenizer, {**HERE, **config})


def steps_of(batch):
    return batch.rollouts[0].episodes[0].steps


def test_expert_games_have_the_masks_of_the_specification(tasks, chat_tokenizer):
    env = agentsgym.make("ALFWorld", chat_tokenizer)
    batch = env.run_trial(list(tasks.values()), ExpertAgent())
    for p, task in enumerate(tasks.values()):
        plan = env.expert_plan(task)
        ids, mask = batch["completion_ids"][p], batch["action_mask"][p]
        assert len(ids) == len(mask) == len(batch["logprobs"][p])
        assert mask[0] == mask[-1] == 1
        assert _actions(chat_tokenizer, ids, mask) == list(plan)
        assert all(logprob == 0.0 for logprob in batch["logprobs"][p])
        assert batch["step_rewards"][p] == [0.0] * (len(plan) - 1) + [1.0]
        first = chat_tokenizer.decode(batch["prompt_ids"][p])
        assert "Your task is to: " in first and plan[0] in first
        assert batch["prompt_ids"][p] + ids == batch["full_token_ids"][p]


def _actions(tokenizer, ids, mask):
    """The texts of the runs of action tokens, observations between them."""
    runs, previous = [], 0
    for token, on in zip(ids, mask, strict=True):
        if on and not previous:
            runs.append([])
        if on:
            runs[-1].append(token)
        previous = on
    return [tokenizer.decode(run) for run in runs]


def test_prompts(task):
    batch = make().run_trial([task], ScriptedAgent(["look", "help"]))
    first, _, second = batch["final_completion_messages"][0][:3]
    assert first["content"].startswith("You are in a household.")
    assert "\n\nYou are in the middle of a room." in first["content"]
    assert ", help, inventory, look." in first["content"]
    assert second["content"].startswith("You are in the middle of a room.")
    assert "Admissible commands: " in second["content"]
    bare = make(admissible_commands=False).run_trial([task], ScriptedAgent(["look"]))
    assert "Admissible" not in bare["final_completion_messages"][0][0]["content"]


def test_what_is_not_admissible_changes_nothing_and_counts_as_malformed(task):
    env = make(error_allowance=3)
    plan = env.expert_plan(task)
    script = ["juggle", f"not {plan[0]}", "", "x" * 100_000, "never said"]
    batch = env.run_trial([task], ScriptedAgent(script))
    episode = batch.rollouts[0].episodes[0]
    assert episode.stop_reason == "malformed"
    assert [step.malformed for step in episode.steps] == [True] * 4
    assert all(
        m["content"].startswith("Nothing happens.")
        for m in episode.messages[2:]
        if m["role"] == "user"
    )
    forgiven = [part for command in plan for part in ("juggle", command)]
    batch = env.run_trial([task], ScriptedAgent(forgiven))
    assert batch["final_rewards"] == [1.0]
    assert steps_of(batch)[-1].info["stop_reason"] == "win"


def test_dense_reward_is_the_drop_in_the_plan(tasks):
    task = tasks["pick_heat_then_place_in_recep"]
    env = make(dense_reward=0.5)
    plan = env.expert_plan(task)
    batch = env.run_trial([task], ScriptedAgent(plan))
    assert batch["step_rewards"][0] == [0.5] * (len(plan) - 1) + [1.5]
    assert batch["final_rewards"] == [env.reference_score(task)] == [1 + 0.5 * len(plan)]
    detour = next(c for c in _first_commands(env, task) if c.startswith("go to") and c != plan[0])
    batch = env.run_trial([task], ScriptedAgent([plan[0], plan[1], detour, "look"]))
    rewards = batch["step_rewards"][0]
    assert rewards[:2] == [0.5, 0.5]
    assert rewards[2] <= 0.0
    lengths = [step.info["plan_length"] for step in steps_of(batch)[:3]]
    assert lengths[:2] == [len(plan) - 1, len(plan) - 2]


def _first_commands(env, task):
    return env._initialize_episode("s", dict(task)).commands


def test_anchors_are_equal_where_the_world_is(task):
    env = make()
    there, back = _first_commands(env, task)[:2]
    batch = env.run_trial([task], ScriptedAgent([there, back, there, "look", "help"]))
    anchors = [step.info["anchor"] for step in steps_of(batch)]
    assert anchors[0] == anchors[2] == anchors[3]
    assert anchors[0] != anchors[1]


def test_generated_datasets(cache_dir):
    config = {
        "cache_dir": str(cache_dir),
        "task_types": ["pick_and_place_simple", "look_at_obj_in_light"],
    }
    env = make(**config, train_tasks=2, eval_tasks=2)
    train, held_out = env.get_train_dataset(), env.get_eval_dataset()
    assert [row["task_data"]["task_type"] for row in train] == [
        "pick_and_place_simple",
        "look_at_obj_in_light",
    ]
    assert {row["task_data"]["split"] for row in held_out} == {"valid_unseen"}
    assert train[0]["env_class_path"] == "ALFWorld"
    files = [row["task_data"]["game_file"] for row in (*train, *held_out)]
    assert len(set(files)) == 4
    assert all(Path(file).is_file() for file in files)


def test_a_generated_game_that_is_gone_is_made_again_in_the_cache(task, tmp_path):
    moved = {**task, "game_file": str(tmp_path / "elsewhere" / "game.tw-pddl")}
    env = make(cache_dir=str(tmp_path / "cache"))
    batch = env.run_trial([moved], ScriptedAgent(["look", "juggle"]))
    assert not batch.rollouts[0].failed
    made = Path(env.game_file(moved))
    assert made.is_relative_to(tmp_path / "cache")
    assert made.read_bytes() == Path(task["game_file"]).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


@pytest.fixture
def official(tmp_path, tasks):
    """A folder laid out as the official data."""
    for split in ("train", "valid_seen", "valid_unseen"):
        for kind, task in tasks.items():
            source = Path(task["game_file"]).parent
            target = tmp_path / "json_2.1.1" / split / f"{kind}-Mug-None-Shelf-1" / "trial_T1"
            shutil.copytree(source, target)
    sliced = tmp_path / "json_2.1.1" / "train" / "pick_and_place_simple-AppleSliced-None-Desk-1"
    shutil.copytree(source, sliced / "trial_T2")
    unsolvable = target.parents[1] / "look_at_obj_in_light-Pen-None-DeskLamp-2" / "trial_T3"
    shutil.copytree(source, unsolvable)
    game = json.loads((unsolvable / "game.tw-pddl").read_text())
    (unsolvable / "game.tw-pddl").write_text(json.dumps({**game, "solvable": False}))
    return tmp_path


def test_official_data_in_a_folder_or_by_its_variable(official, monkeypatch):
    rows = make(data=str(official)).get_train_dataset()
    assert sorted(row["task_data"]["task_type"] for row in rows) == sorted(
        row["task_data"]["task_type"] for row in make(data=str(official)).get_eval_dataset()
    )
    assert len(rows) == 6
    assert "seed" not in rows[0]["task_data"]
    monkeypatch.setenv("ALFWORLD_DATA", str(official))
    env = make(task_types=["pick_heat_then_place_in_recep"], eval_split="valid_seen", train_tasks=1)
    held_out = env.get_eval_dataset()
    assert len(env.get_train_dataset()) == len(held_out) == 1
    assert "/valid_seen/" in held_out[0]["task_data"]["game_file"]
    task = held_out[0]["task_data"]
    assert env.reference_score(task) == 1.0
    relative = str(Path(task["game_file"]).relative_to(official / "json_2.1.1"))
    assert env.game_file({"game_file": relative}) == task["game_file"]


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    with pytest.raises(NoGames, match=r"none of the folders train, valid_seen"):
        make(data=str(tmp_path)).get_train_dataset()
    gone = str(tmp_path / "game.tw-pddl")
    env = make()  # run_trial trusts the paths of its caller, and the object only meanwhile
    batch = env.run_trial([{"game_file": gone}, {}], ScriptedAgent(["x"]))
    assert not env.trusts_tasks
    assert f"there is no game {gone}" in batch.rollouts[0].error
    assert "task_data needs a 'game_file'" in batch.rollouts[1].error
    with pytest.raises(ConfigError, match=r"task_types.*'pick_and_place_simple'"):
        make(task_types=["pick"])
    with pytest.raises(ConfigError, match="eval_split"):
        make(eval_split="train")


FORMS = [str, " {}\n".format, str.title, lambda text: text.replace(" ", "  "), "{}.".format,
         "Action: {}".format, "`{}`".format, str.upper, "I go.\n{}".format]  # fmt: skip


def test_without_explanations_a_command_is_read_as_the_engine_reads_it(task):
    env = make(explain_actions=False, max_steps_per_episode=1)
    command = HouseholdGame(env.game_file(task)).commands[0]
    for text in (form(command) for form in FORMS):
        (rollout,) = env.run_trial([task], ScriptedAgent([text])).rollouts
        engine = HouseholdGame(env.game_file(task))
        engine.step(text)
        assert rollout.episodes[0].steps[0].malformed == (engine.text == NOTHING), text
