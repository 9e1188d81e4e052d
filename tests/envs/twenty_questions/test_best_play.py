"""The greedy policy: it wins, and knows what an answer leaves."""

import math

import numpy as np

from agentsgym import TwentyQuestionsEnv
from agentsgym.envs.twenty_questions.answerer import CallableAnswerer
from helpers import questions_answered_by


def played(**config):
    env = TwentyQuestionsEnv(None, config)
    return [env.reference_play({"solution": secret, "seed": 0})[0] for secret in env.table.secrets]


def test_the_quickstart_is_won_in_eight_steps_and_sooner_with_hints():
    settings = {"table": "quickstart", "max_steps_per_episode": 8}
    plays, hinted = played(**settings), played(**settings, hints=2)
    assert all(play.win for play in plays) and sum(play.win for play in hinted) >= 63
    steps = np.mean([play.steps for play in plays])
    assert math.log2(64) + 1 <= steps < 7.3
    assert np.mean([play.steps for play in hinted]) < steps


def test_the_default_table_is_nearly_always_won():
    plays = played()
    assert np.mean([play.win for play in plays]) > 0.98
    assert np.mean([play.steps for play in plays]) < 12


def test_the_last_action_is_a_guess_and_contradictions_are_ignored():
    answerer = CallableAnswerer(lambda secret, question, history: "I don't know")
    config = {"table": "quickstart", "max_steps_per_episode": 3}
    env = questions_answered_by(answerer, config)
    plays = [env.reference_play({"solution": secret})[0] for secret in env.table.secrets]
    assert sum(play.win for play in plays) == 1 and {play.steps for play in plays} == {3}
