"""The presets and the adapter: words, seeds, tasks."""

from typing import ClassVar

import pytest

pytest.importorskip("gymnasium", reason="needs the extra gymnasium")

import gymnasium

from agentsgym import ScriptedAgent
from agentsgym.envs import EnvPool, make
from agentsgym.envs.gymnasium import GymnasiumEnv
from agentsgym.envs.gymnasium.adapter import action_word

PRESETS = ["FrozenLake", "Taxi", "CliffWalking", "Blackjack"]


@pytest.mark.parametrize("name", PRESETS)
def test_rows_make_the_same_environment_and_tasks_are_disjoint(name):
    env = make(f"Gymnasium/{name}", None, {"train_tasks": 20, "eval_tasks": 5})
    train, held_out = env.get_train_dataset(), env.get_eval_dataset()
    assert type(EnvPool().get(train[0])) is type(env)
    if name == "CliffWalking":
        assert train["task_data"] == held_out["task_data"] == [{"seed": 0}]
        return
    assert (len(train), len(held_out)) == (20, 5)
    starts = [env._initialize_episode("s", row["task_data"]).text for row in [*train, *held_out]]
    if name != "Blackjack":
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


@pytest.mark.parametrize("name", ["FrozenLake", "Taxi", "CliffWalking"])
def test_sessions_share_the_model_and_nothing_else(name):
    env = make(f"Gymnasium/{name}")
    one, two = (env._initialize_episode("s", {"seed": 0}) for _ in range(2))
    assert one.raw is not two.raw and one.raw.P is two.raw.P
    before = repr(two.raw.P), two.raw.s, two.raw.np_random.bit_generator.state
    env._step_episode("s", one, next(iter(env.actions)))
    env._step_episode("s", one, list(env.actions)[-1])
    assert (repr(two.raw.P), two.raw.s, two.raw.np_random.bit_generator.state) == before


def test_giving_up_is_no_way_to_save_time():
    for name, worst in (("CliffWalking", -50.0), ("Taxi", -60.0), ("Blackjack", -1.0)):
        batch = make(f"Gymnasium/{name}").run_trial([{"seed": 0}], ScriptedAgent(["nonsense"]))
        assert batch["final_rewards"] == [worst]
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


def test_an_environment_of_ones_own_takes_a_few_lines():
    class Walk(GymnasiumEnv):
        env_id = "CliffWalking-v1"
        actions: ClassVar = {"north": 0, "east": 1, "south": 2, "west": 3}
        rules = "Find the way."

    env = Walk()
    assert env._format_prompt(env._initialize_episode("s", {"seed": 0}), 0) == (
        "Find the way.\n\nObservation: 36\n\n"
        "Answer with one of: north, east, south, west. For example:\nnorth"
    )
    batch = env.run_trial([{"seed": 0}], ScriptedAgent(["north", *["east"] * 11, "south"]))
    assert batch["final_rewards"] == [-13.0]
