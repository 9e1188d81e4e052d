"""The command: exit status, JSON, errors in one line."""

import json

import typer
from typer.testing import CliRunner

from agentsgym.cli.check import check, settings

app = typer.Typer()
app.command()(check)
runner = CliRunner()


def test_json_and_status_zero():
    result = runner.invoke(app, ["ClassicalReasoning", "--json", "--seconds", "5"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["env"] == "ClassicalReasoning" and report["passed"]


def test_text_names_each_check():
    arguments = ["ClassicalReasoning", "-c", "attempts=2", "--seconds", "5"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "passed  interleaved" in result.stdout and "steps/s" in result.stdout


def test_a_failed_check_is_status_one():
    path = "checks.broken.PaysTooMuch"
    result = runner.invoke(app, [path, "--seconds", "5"])
    assert result.exit_code == 1, result.output
    assert "FAILED  rewards" in result.stdout


def test_bad_usage_is_status_two_in_one_line():
    for arguments in (
        ["Nonesuch"],
        ["ClassicalReasoning", "-c", "atempts=2"],
        ["ClassicalReasoning", "-c", "attempts"],
        ["Bandit", "--seconds", "nan"],
    ):
        result = runner.invoke(app, arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")


def test_settings_are_json_or_text():
    pairs = ["a=1", "b=true", 'c=["x"]', "d=hard", "e=a=b"]
    assert settings(pairs) == {"a": 1, "b": True, "c": ["x"], "d": "hard", "e": "a=b"}
