"""agent:optimal, agent:teacher and agent:random, on the environments that bring them."""

import json

import pytest

import agentsgym
from agentsgym.agents.scripted import available_agents, scripted_agent
from agentsgym.envs import ConfigError
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.extras import MissingExtra
from helpers import CountdownEnv


@pytest.mark.parametrize(
    ("name", "agents"),
    [
        ("TwentyQuestions", {"optimal", "teacher"}),
        ("Bandit", {"optimal", "teacher", "random"}),
        ("ClassicalReasoning", set()),
        ("TextArena/Blackjack", {"teacher", "random"}),
    ],
)
def test_agents_are_those_whose_methods_are_defined(name, agents):
    assert set(available_agents(made(name))) - {"never"} == agents


def made(name, **config):
    try:
        return agentsgym.make(name, None, config)
    except MissingExtra as error:
        pytest.skip(str(error))


MADE_GAMES = ("ALFWorld", "TextWorld")
"""Environments that first make the files of a game, which takes seconds."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in MADE_GAMES else ()) for n in BUILTIN],
)
def test_they_play_the_shipped_environments(name, tmp_path):
    files = {"cache_dir": str(tmp_path), "train_tasks": 1, "eval_tasks": 1}
    env = made(name, **files if name in MADE_GAMES else {})
    task = env.get_train_dataset()["task_data"][0]
    for kind in available_agents(env):
        [rollout] = env.run_trial([task], scripted_agent(env, kind, seed=1)).rollouts
        assert rollout.error is None
        assert rollout.episodes[0].steps


@pytest.mark.parametrize(("env", "kind"), [("Bandit", "optimal"), ("Mastermind", "random")])
def test_they_are_evaluated_here_and_in_worker_processes(invoke, env, kind):
    evaluations = [
        json.loads(
            invoke(
                "eval", f"agent:{kind}", "--env", env, f"env_config.workers={workers}",
                "--rollouts", "12", "--json",
            ).stdout
        )
        for workers in (0, 1)
    ]  # fmt: skip
    assert evaluations[0] == evaluations[1] and evaluations[0]["failures"] == 0
    if kind == "optimal":
        assert evaluations[0]["regret"] == pytest.approx(0.0, abs=1e-9)
    else:
        assert evaluations[0]["regret"] > 0.05


def test_an_environment_without_agents_says_what_to_define():
    with pytest.raises(ConfigError) as error:
        scripted_agent(CountdownEnv(), "teacher")
    for part in ("teacher_agent(self, *, seed=0)", "admissible_actions(self, state)", "no other"):
        assert part in str(error.value)


def test_a_tiny_model_needs_a_teacher(invoke, workplace):
    result = invoke("train", "toy.yaml", "model=tiny")
    assert result.exit_code == 2
    assert "DigitEnv has no teacher" in " ".join(result.stderr.split())
