"""The presets and the adapter: words, seeds, tasks."""

import pytest

pytest.importorskip("gymnasium", reason="needs the extra gymnasium")

import gymnasium

from agentsgym import ScriptedAgent
from agentsgym.envs import EnvPool, make
from agentsgym.envs.gymnasium import action_word

PRESETS = ["FrozenLake", "Taxi"]


@pytest.mark.parametrize("name", PRESETS)
def test_rows_make_the_same_environment_and_tasks_are_disjoint(name):
    env = make(f"Gymnasium/{name}", None, {"train_tasks": 20, "eval_tasks": 5})
    train, held_out = env.get_train_dataset(), env.get_eval_dataset()
    assert type(EnvPool().get(train[0])) is type(env)
    assert (len(train), len(held_out)) == (20, 5)
    starts = [env._initialize_episode("s", row["task_data"]).text for row in [*train, *held_out]]
    assert len(set(starts)) == 25


def test_rewards_are_gymnasiums_own():
    env = make("Gymnasium/Taxi")
    raw = gymnasium.make("Taxi-v4").unwrapped
    raw.reset(seed=5)
    words = ["north", "pickup", "east", "south", "dropoff", "west"]
    running = env._initialize_episode("s", {"seed": 5})
    for word in words:
        running, reward, _, _ = env._step_episode("s", running, word)
        observation, paid, *_ = raw.step(env.actions[word])
        assert (running.observation, reward) == (observation, paid)


def test_giving_up_is_no_way_to_save_time():
    batch = make("Gymnasium/Taxi").run_trial([{"seed": 0}], ScriptedAgent(["nonsense"]))
    assert batch["final_rewards"] == [-60.0]
    assert batch.rollouts[0].episodes[0].stop_reason == "malformed"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("left", "left"),
        ("I go left.", "left"),
        ("<think>left or right</think> right", "right"),
        ("left, right, up, down", None),
        ("", None),
        ("left " * 2000, None),
    ],
)
def test_words(text, word):
    assert action_word(text, ["left", "right", "up", "down"]) == word
