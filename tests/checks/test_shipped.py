"""Every environment that comes with the package passes its check under its registered name, also in
trials, whatever is carried from episode to episode."""

import pytest

from agentsgym.checks import check_env
from agentsgym.checks.check import CHECKS
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.extras import installed
from rollout.doubles import SumEnv

SLOW = {"ALFWorld", "TextWorld", "TextArena/RushHour", "TextArena/Sokoban"}
QUICK = ("TwentyQuestions",)
TRIAL = {"episodes_per_trial": 3, "free_shots": 1}
# Started processes and measured speed are the same as in trials of one episode.
SHORT = [name for name in CHECKS if name not in ("another process", "speed")]


def skip_unless_installed(name):
    shipped = BUILTIN[name]
    if shipped.module is not None and not installed(shipped.module):
        pytest.skip(f"needs the extra {shipped.extra}")


# The other games of these packages share a class with one of them.
SOME = ("Gymnasium/Taxi", "TextArena/Bandit", "TextArena/Crosswords", "TextArena/FrozenLake")


@pytest.mark.parametrize(
    "name",
    [
        n if n in SOME or not ("/" in n or n in SLOW) else pytest.param(n, marks=pytest.mark.slow)
        for n in BUILTIN
    ],
)
def test_it_passes_with_no_configuration(name):
    skip_unless_installed(name)
    budget = 60.0 if name in SLOW else 1.0
    assert check_env(name, budget_seconds=budget).raise_if_failed().passed


def _named(name):
    return name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.timeout(1500)  # ALFWorld makes its games first
@pytest.mark.parametrize("carry", ["none", "full", "summary"])
@pytest.mark.parametrize("name", map(_named, BUILTIN))
def test_it_passes_with_carried_episodes(name, carry):
    skip_unless_installed(name)
    only, budget = (SHORT, 0.5) if name in QUICK else ([], 3.0)
    check_env(name, {**TRIAL, "carry": carry}, only=only, budget_seconds=budget).raise_if_failed()


def test_an_environment_with_tools_passes():
    tasks = [{"number": number} for number in range(4)]
    report = check_env(SumEnv, tasks=tasks, only=SHORT, budget_seconds=60).raise_if_failed()
    found = {finding.name: finding for finding in report.findings}
    assert "in 4 trials" in found["masks"].evidence  # no template, no tools


def test_actions_as_calls_pass():
    config = {"action_form": "tool"}
    check_env("Bandit", config, only=SHORT, budget_seconds=1).raise_if_failed()
