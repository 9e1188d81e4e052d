"""The command: exit status, JSON, errors in one line."""

import json

import pytest


def test_json_and_status_zero(invoke):
    result = invoke("check", "Bandit", "--json", "--seconds", "1")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["env"] == "Bandit" and report["passed"]


def test_a_failed_check_is_status_one(invoke):
    path = "checks.broken.PaysTooMuch"
    result = invoke("check", path, "--seconds", "2")
    assert result.exit_code == 1, result.output
    assert "FAILED  rewards" in result.stdout
    assert result.stderr == "playing PaysTooMuch without a model for about 2 s\n"


def test_bad_usage_is_status_two_in_one_line(invoke):
    for arguments in (
        ["Nonesuch"],
        ["Bandit", "env_config.amrs=2"],
        ["Bandit", "--seconds", "nan"],
    ):
        result = invoke("check", *arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")


@pytest.mark.parametrize("command", [["train", "x.yaml"], ["eval", "x"], ["play", "Bandit"],
                                     ["check", "Bandit"]])  # fmt: skip
def test_every_command_says_the_same_about_a_bad_setting(invoke, command):
    bare = invoke(*command, "arms=3")
    assert bare.exit_code == 2 and "environment is env_config.arms" in bare.stderr
    for arguments in (["arms"], ["arms=["]):
        result = invoke(*command, *arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith(("error: 'arms' is not", "error: the value of arms"))
