"""Rewards and truth values of every kind of environment are read by one rule."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import openai
import pytest
import torch

from agentsgym import DirectOutputAgent, SamplingParams, ScriptedAgent, ToolEnv, register
from agentsgym.envs.gymnasium import GymnasiumEnv
from agentsgym.envs.program.env import ProgramEnv
from agentsgym.evaluation import evaluate
from agentsgym.integrations.text_gym import TextGymEnv
from agentsgym.types.foreign import number, truth
from helpers import CHATML, CountdownEnv, build_tokenizer
from rollout.doubles import TextEngine

TOKENIZER = build_tokenizer(CHATML)
ONE = [1, 1.0, True, np.float32(1), np.int64(1), np.bool_(True), np.array(1.0), Fraction(1),
       Decimal(1), torch.tensor(1), torch.tensor(True), torch.ones(()).bfloat16()]  # fmt: skip
NO_NUMBER = ["1.0", b"1", bytearray(b"1"), None, [1.0], (1.0,), np.array([1.0]), torch.ones(1), 1j,
             {}, np.array("1"), len]  # fmt: skip
NEITHER = [*NO_NUMBER, "false", "true", "", [False], -1, 2, 0.5, math.nan, np.nan, 10**400,
           torch.tensor(-1)]  # fmt: skip


def texts(values):
    return [f"{type(value).__name__} {value!r}" for value in values]


@pytest.mark.parametrize("value", ONE, ids=texts(ONE))
def test_every_kind_of_one_is_a_number_and_true(value):
    assert number(value) == 1.0 and type(number(value)) is float
    assert truth(value) is True


@pytest.mark.parametrize("value", NEITHER, ids=[text[:40] for text in texts(NEITHER)])
def test_what_is_neither_true_nor_false_is_no_truth_value(value):
    assert truth(value) is None


def test_a_number_too_large_for_a_float_is_infinite_and_every_zero_is_false():
    assert number(10**400) == math.inf
    assert [truth(zero) for zero in (0, 0.0, -0.0, np.False_, torch.tensor(False))] == [False] * 5
    assert [number(value) for value in NO_NUMBER] == [None] * len(NO_NUMBER)


# -- each kind of environment --------------------------------------------------------------------


def play(env, agent=None):
    agent = agent or ScriptedAgent(["left", "left"])
    (rollout,) = env.run_trial([{"rewards": [0.0], "seed": 0}], agent).rollouts
    return rollout


def environment(reward, win, done=True):
    class Env(CountdownEnv):
        def _step_episode(self, session_id, state, action):
            return state, reward, done, {"win": win, "informing": win}

    return play(Env(None, {"max_steps_per_episode": 1}))


def tools(reward, win):
    class Env(ToolEnv):
        def _initialize_episode(self, session_id, task_data):
            return {"prompt": "?"}

        def grade(self, state, answer):
            return reward

    return play(Env())


def text_gym(reward, win):
    class Env(TextGymEnv):
        def make_gym(self, task_data):
            return Gym(reward, win)

    return play(Env())


def gymnasium(reward, win):
    class Env(GymnasiumEnv):
        actions = {"left": 0, "right": 1}
        rules = "Walk."

        def _make(self, options):
            return Gym(reward, win)

        def describe(self, raw, observation):
            return "a lake"

    return play(Env())


class Gym:
    """A foreign environment of one step."""

    def __init__(self, reward, win):
        self.answer = "over", reward, win, False, {}

    def reset(self, seed=None):
        return "begin", {}

    def step(self, action):
        return self.answer


def program(reward, win):
    class Program(ProgramEnv):
        def run(self, task, client):
            openai.OpenAI(base_url=client.base_url, api_key=client.api_key).chat.completions.create(
                model="any", messages=[{"role": "user", "content": "?"}]
            )
            return {"reward": reward, "win": win}

    agent = DirectOutputAgent(TextEngine(TOKENIZER), SamplingParams(max_tokens=8))
    return play(Program(TOKENIZER), agent)


KINDS = [environment, tools, text_gym, gymnasium, program]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reward", ONE, ids=texts(ONE))
def test_a_reward_of_one_is_paid_by_every_kind_of_environment(kind, reward):
    rollout = kind(reward, True)
    assert not rollout.failed, rollout.error
    assert rollout.final_reward == 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reward", ["1.0", [[1.0]], np.ones((1, 1)), math.nan, 1j], ids=repr)
def test_what_is_no_reward_fails_the_rollout_in_every_kind_of_environment(kind, reward):
    assert kind(reward, True).failed


@pytest.mark.parametrize("kind", [environment, text_gym, gymnasium, program])
@pytest.mark.parametrize(
    "win", ["false", [False], -1, math.nan, np.array([False]), 2], ids=lambda win: repr(win)
)
def test_what_is_neither_true_nor_false_is_refused_in_every_kind_of_environment(kind, win):
    rollout = kind(1.0, win)
    assert rollout.failed and "must be True or False" in rollout.error


@pytest.mark.parametrize("done", ["false", [False], math.nan, None, np.array([True])], ids=repr)
def test_whether_an_episode_is_over_is_read_as_strictly(done):
    rollout = environment(1.0, True, done)
    assert rollout.failed and "done must be True or False" in rollout.error


def test_a_reference_score_is_a_number_or_unknown(caplog):
    class Env(CountdownEnv):
        def reference_score(self, task_data):
            return "0.5"

    register("Scored", Env)
    row = {"env_class_path": "Scored", "env_config": {}, "task_data": {"rewards": [1.0]}}
    played = evaluate([row], ScriptedAgent(["a"]), rollouts=1)
    assert played.evaluation.reference is None
