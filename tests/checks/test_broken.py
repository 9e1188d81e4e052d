"""check_env catches each environment that is broken, by the check that is meant for it."""

import json
import re

import pytest

from agentsgym.checks import CheckFailed, check_env
from agentsgym.envs import ConfigError
from checks import broken

# Environment → the check that catches it, and what its evidence says.
CAUGHT_BY = {
    broken.SharesState: ("interleaved", "side by side"),
    broken.LeavesStates: ("interleaved", ""),
    broken.DrawsAnEpisode: ("interleaved", ""),
    broken.SeedsGlobally: ("global randomness", "random"),
    broken.TellsTheTime: ("same seed", ""),
    broken.ListsASet: ("another process", ""),
    broken.PaysTooMuch: ("rewards", ""),
    broken.WinsByListing: ("list everything", r"wins (\d+) of \1 tasks"),
    broken.ObeysInjections: ("hostile actions", ""),
    broken.CrashesOnBinary: ("hostile actions", "raised: UnicodeEncodeError"),
    broken.ListsWhatItRefuses: (
        "admissible actions",
        r"after \[.*\], '\[\w+\]' is listed, but it is malformed",
    ),
    broken.ListsWhatCrashes: ("admissible actions", r"'\[lemon\]' is listed, but it raises"),
    broken.ListsTooFew: ("admissible actions", ""),
    broken.ForgetsAPlayersMove: (
        "admissible actions",
        r"at the start, '\[give up\]' is accepted, but not listed",
    ),
    broken.ListsAnUnorderedSet: ("admissible actions", "must return a list of str, got {"),
    broken.ListsOneTwice: ("admissible actions", r"lists '\[apple\]' twice"),
    broken.LeavesThreads: ("clean-up", ""),
    broken.LeavesFiles: ("clean-up", ""),
    broken.CannotClose: ("clean-up", ""),
    broken.PlaysOnAfterDone: ("ending", ""),
    broken.MasksEverything: ("masks", ""),
    broken.TrainsOnItsEvaluation: ("tasks", "1 of 2 evaluation tasks"),
    broken.NamesAnother: ("tasks", ""),
}


def test_a_sound_environment_passes():
    report = check_env(broken.SoundEnv, budget_seconds=4)
    assert report.passed, report.to_text()
    assert report["same seed"].evidence.endswith("played twice; it can be branched")
    assert report.raise_if_failed() is report
    assert not [w for w in report.warnings if "earns" in w]


@pytest.mark.parametrize("env_class", CAUGHT_BY, ids=lambda c: c.__name__)
def test_each_broken_environment_is_caught(env_class):
    name, evidence = CAUGHT_BY[env_class]
    report = check_env(env_class, budget_seconds=10, only=[name])
    assert not report.passed and re.search(evidence, report[name].evidence), report.to_text()
    with pytest.raises(CheckFailed, match=name):
        report.raise_if_failed()


def test_an_answer_that_no_agent_reads_is_warned_of():
    report = check_env(broken.HasNoLastPrompt, budget_seconds=4, only=["ending"])
    assert report.passed, report.to_text()
    assert "IndexError" in report.warnings[0] and "_format_answer" in report.warnings[0]


def test_a_game_in_which_nobody_makes_a_legal_move_is_warned_of():
    report = check_env(broken.IsUnseen, budget_seconds=4, only=["rewards"])
    assert report.passed and any("no action of any player was legal" in w for w in report.warnings)
    own = check_env(broken.FailsItsTeacher, budget_seconds=4, only=["rewards"])
    assert re.match(r"\d of \d+ trials raised: AttributeError", own["rewards"].evidence)


def test_nonsense_that_is_answered_as_a_wrong_word_is_warned_of():
    report = check_env(broken.ReadsAnything, budget_seconds=4, only=["admissible actions"])
    assert report.passed and "'nonsense 0' is answered as a listed action is" in report.warnings[0]


def test_where_no_trial_begins_nothing_else_is_checked():
    report = check_env(broken.HasNoFirstPrompt, budget_seconds=4)
    assert [finding.name for finding in report.findings] == ["tasks", "rewards"]
    assert "_format_prompt must return str, got dict" in report["rewards"].evidence


@pytest.mark.parametrize("env_class", [broken.ListsItsWords, broken.HasOtherNames])
def test_a_list_of_all_legal_actions_passes(env_class):
    report = check_env(env_class, budget_seconds=4, only=["admissible actions"])
    assert report.passed, report.to_text()
    assert re.match(r"\d\d+ listed and \d\d+ other actions", report["admissible actions"].evidence)


def test_an_environment_that_accepts_nonsense_is_warned_of():
    report = check_env(broken.AcceptsNonsense, budget_seconds=4, only=["admissible actions"])
    assert report.passed, report.to_text()
    assert report.warnings == (
        "no list is complete: 'nonsense 0' is not malformed, and is in none",
    )


def test_actions_are_tried_for_their_share_of_the_time():
    """With no time left after the first state, the fewest are tried in two others; an environment
    without lists takes none."""
    report = check_env(broken.ListsItsWords, budget_seconds=0.01, only=["admissible actions"])
    listed, others, states = map(int, re.findall(r"\d+", report["admissible actions"].evidence))
    assert (listed <= 8 + 2 + 2, others <= 24 + 6 + 6, states) == (True, True, 3)
    report = check_env(broken.SoundEnv, only=["admissible actions"])
    assert report["admissible actions"].evidence == "the environment lists no actions"


def test_cheap_rewards_are_warned_of_but_do_not_fail():
    report = check_env(broken.PaysForTalking, budget_seconds=4)
    assert report.passed, report.to_text()
    assert any("always the same earns 0.9" in warning for warning in report.warnings)


def test_report_is_json_and_an_object_is_checked_through_new_ones():
    env = broken.SoundEnv(None, {"max_steps_per_episode": 3})
    report = check_env(env, only=["ending", "speed"])
    plain = json.loads(report.to_json())
    assert plain["passed"] and plain["env_config"] == {"max_steps_per_episode": 3}
    assert [f["name"] for f in plain["findings"]] == ["ending", "speed"]
    assert plain["findings"][1]["numbers"]["steps_per_second"] > 0
    assert "of 3 steps" in report["ending"].evidence
    assert not env.active_states


def test_an_environment_without_datasets_needs_tasks():
    class NoTasks(broken.SoundEnv):
        def get_train_dataset(self):
            raise NotImplementedError

        get_eval_dataset = get_train_dataset

    with pytest.raises(ValueError, match="no tasks"):
        check_env(NoTasks)
    report = check_env(NoTasks, tasks=[{"word": "apple", "seed": 1}], budget_seconds=5)
    assert report.passed, report.to_text()


def test_unknown_check_is_refused():
    with pytest.raises(ValueError, match="no check 'taste'"):
        check_env(broken.SoundEnv, only=["taste"])


@pytest.mark.parametrize("tasks", [None, [{"word": "apple"}], iter([]), {"apple": 1}.values()])
def test_tasks_that_are_no_dataset_are_a_sentence(tasks):
    class Lists(broken.SoundEnv):
        def get_train_dataset(self):
            return tasks

    with pytest.raises(ConfigError, match=r"get_train_dataset must return a dataset"):
        check_env(Lists)
