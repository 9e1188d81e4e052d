"""Environments with `reset() -> text` and `step(text)`, in every shape in which they come."""

import random

import numpy as np
import pytest

from agentsgym import ScriptedAgent
from agentsgym.checks import check_env
from agentsgym.integrations.text_gym import TextGymEnv

LIVE = []


class Dice:
    """Guess the sum of a die of `random` and one of `numpy`, rolled anew in every step."""

    def __init__(self):
        LIVE.append(self)
        self.steps = 0

    def reset(self, seed=None):
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
        return f"Guess. The last roll was {self.roll()}.", {"suffix": "!"}

    def roll(self):
        return random.randint(1, 6) + int(np.random.randint(1, 7))

    def step(self, action):
        self.steps += 1
        if action == "break":
            raise RuntimeError("broken")
        rolled = self.roll()
        won = action == str(rolled)
        return f"It was {rolled}.", float(won), won, self.steps == 3, {"rolled": rolled}

    def close(self):
        LIVE.remove(self)


class DiceEnv(TextGymEnv):
    reward_range = (0.0, 1.0)

    def make_gym(self, task_data):
        return Dice()

    def admissible_actions(self, state):
        return [str(number) for number in range(2, 13)]


@pytest.fixture(autouse=True)
def nothing_stays_open():
    LIVE.clear()
    yield
    assert LIVE == []


def test_play_through_the_adapter_equals_the_environment_itself():
    guesses = ["7", "8", "6"]
    batch = DiceEnv().run_trial([{"seed": seed} for seed in range(8)], ScriptedAgent(guesses))
    for seed, rollout in enumerate(batch.rollouts):
        dice = Dice()
        observations, rewards = [dice.reset(seed=seed)[0]], []
        for guess in guesses:
            observation, reward, terminated, truncated, info = dice.step(guess)
            observations.append(observation)
            rewards.append(reward)
            if terminated or truncated:
                break
        dice.close()
        (episode,) = rollout.episodes
        assert [step.observation for step in episode.steps] == observations[: len(rewards)]
        assert [step.reward for step in episode.steps] == rewards
        assert episode.steps[-1].info["gym"] == info
        assert episode.win == (rewards[-1] == 1.0)
        assert episode.stop_reason == ("done" if terminated else "truncated")


def test_sessions_have_random_numbers_of_their_own_and_the_check_passes():
    random.seed(5)
    before = random.getstate()
    report = check_env(DiceEnv, budget_seconds=2)
    assert report.passed, report.to_text()
    assert random.getstate() == before


@pytest.mark.parametrize("script", [["break"], ["7", "break"], ["x"], SystemExit])
def test_the_environment_is_closed_however_the_episode_ends(script):
    def leave(messages):
        raise SystemExit("no")

    agent = ScriptedAgent(leave if script is SystemExit else script)
    env = DiceEnv(None, {"episodes_per_trial": 2, "max_steps_per_episode": 2})
    env.run_trial([{"seed": 1}], agent)


def test_an_environment_that_does_not_start_is_closed():
    class Unready(Dice):
        def reset(self, seed=None):
            raise RuntimeError("not ready")

    class UnreadyEnv(DiceEnv):
        def make_gym(self, task_data):
            return Unready()

    assert UnreadyEnv().run_trial([{}], ScriptedAgent(["7"])).rollouts[0].failed


class Gym:
    """Returns what it was given."""

    def __init__(self, first, answer):
        self.reset = lambda: first
        self.step = lambda action: answer


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]


def made(gym):
    class MadeEnv(TextGymEnv):
        def make_gym(self, task_data):
            return gym

    return MadeEnv()


@pytest.mark.parametrize(
    "answer",
    [
        ("end", 0.5, True, {"a": 1}),
        ("end", 0.5, True, False, {"a": 1}),
        {"observations": [], "reward": 0.5, "done": True, "metadata": {"a": 1}},
    ],
    ids=["four", "five", "skyrl"],
)
@pytest.mark.parametrize("first", ["Be brief.\n\nGo.", ("Be brief.\n\nGo.", {}), MESSAGES])
def test_every_shape_of_answers_is_read(first, answer):
    batch = made(Gym(first, answer)).run_trial([{}], ScriptedAgent(["x"]))
    ((step,),) = [e.steps for e in batch.rollouts[0].episodes]
    assert step.observation == "Be brief.\n\nGo."
    assert (step.reward, step.done, step.info["gym"]) == (0.5, True, {"a": 1})
    assert step.info["win"] is False


@pytest.mark.parametrize(
    ("first", "answer", "message"),
    [
        (np.zeros(3), None, "an observation must be text"),
        ([{"role": "tool", "content": "x"}], None, "roles system and user"),
        ([{"role": "user", "content": [{"image_url": "x"}]}], None, "roles system and user"),
        ("go", ("end", 1.0), "step must return"),
        ("go", (3, 1.0, False, {}), "an observation must be text"),
    ],
)
def test_what_has_no_place_in_a_text_conversation_is_named(first, answer, message):
    (rollout,) = made(Gym(first, answer)).run_trial([{}], ScriptedAgent(["x"])).rollouts
    assert rollout.failed and message in rollout.error


def test_a_seed_must_be_a_number():
    assert DiceEnv().check_task({"seed": "7"}) == "'seed' must be a whole number from 0, got '7'"
    assert DiceEnv().check_task({}) is None
