"""What an episode is told about its trial."""

from dataclasses import FrozenInstanceError, replace

import pytest
from doubles import FactsEnv

from agentsgym import ScriptedAgent
from agentsgym.types import EpisodeOutcome, TrialInfo

TRIAL = {"episodes_per_trial": 3, "free_shots": 1, "carry": "full", "error_allowance": 0}


def first_prompts(rollout):
    return [episode.steps[0].observation.rpartition("\n\n")[2] for episode in rollout.episodes]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_episode_is_told_its_number_and_how_the_earlier_ones_ended(workers):
    env = FactsEnv(None, {**TRIAL, "workers": workers})
    script = ScriptedAgent(["a", "b", "bad", "c", "d"])
    [rollout] = env.run_trial([{"rewards": [0.5, 1.0]}], script).rollouts
    won, lost = (1.5, True, "done"), (0.5, True, "malformed")
    assert first_prompts(rollout) == [
        repr((0, 3, 1, "full", (), None, False, None)),
        repr((1, 3, 1, "full", (won,), None, True, ["a", "b"])),
        repr((2, 3, 1, "full", (won, lost), None, True, ["bad"])),
    ]
    assert not env.active_states


def test_it_says_where_the_trial_stands():
    outcome = EpisodeOutcome(1.0, None, "done")
    trial = TrialInfo(1, 3, 1, "full", (outcome,), last_state={"x": 1})
    assert trial.scored and not trial.at(0).scored
    assert trial.at(0) == TrialInfo(0, 3, 1, "full")
    assert trial.without_state().last_state is None
    assert trial.without_state() == trial and "x" not in repr(trial)
    assert trial.round_line("same code") == "Round 2 of 3, scored, same code."
    assert trial.at(0).round_line("same code") == "Round 1 of 3, practice."
    assert replace(trial, carry="none").round_line("same code") == ""
    assert TrialInfo(carry="full").round_line("same code") == ""
    with pytest.raises(FrozenInstanceError):
        trial.episode = 2
