"""The examples for GEM and skyrl-gym, with the packages (`make test-doors DOOR=text-gym`)."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from agentsgym import ScriptedAgent
from agentsgym.checks import check_env

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


@pytest.fixture
def gem():
    return pytest.importorskip("gem", reason="make test-doors DOOR=text-gym")


@pytest.fixture
def skyrl_gym():
    return pytest.importorskip("skyrl_gym", reason="make test-doors DOOR=text-gym")


def test_gem_plays_as_by_itself_and_passes_the_check(gem, example):
    env_class = example("text_gym_gem").GuessTheNumberEnv
    guesses = [r"\boxed{3}", r"\boxed{5}", "none"]
    env = env_class()
    batch = env.run_trial([{"seed": k} for k in range(20)], ScriptedAgent(guesses))
    for seed, rollout in enumerate(batch.rollouts):
        raw = gem.make("game:GuessTheNumber-v0-easy", max_number=5, max_turns=4)
        text, _ = raw.reset(seed=seed)
        for step, guess in zip(rollout.episodes[0].steps, guesses):
            assert step.observation == f"{text}\nEnter your next guess."
            text, reward, terminated, _, _ = raw.step(guess)
            assert (step.reward, step.done) == (reward, terminated)
    report = check_env(env_class, budget_seconds=20)
    assert report.passed, report.to_text()


def test_skyrl_gym_passes_the_check_and_the_example_runs(skyrl_gym, example):
    module = example("text_gym_skyrl")
    report = check_env(module.SumsEnv, budget_seconds=20)
    assert report.passed, report.to_text()
    task = {"prompt": [{"role": "user", "content": "2 + 2?"}], "answer": "4"}
    batch = module.SumsEnv().run_trial([task], ScriptedAgent(["five", "#### 5", "#### 4"]))
    rewards = [step.reward for step in batch.rollouts[0].episodes[0].steps]
    assert rewards == [0.0, pytest.approx(0.2 / 3), 1.0]
    printed = subprocess.run(
        [sys.executable, str(EXAMPLES / "text_gym_skyrl.py")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "rewards: [" in printed.stdout
