"""Numbers in tables are whole however narrow the terminal, shares are percentages; texts wrap."""

import pytest

from agentsgym.cli import console
from agentsgym.cli.tables import comparison_table, evaluation_table
from agentsgym.evaluation import Comparison, Difference, Evaluation

LOSS = Difference(0.1234, 0.7794, -0.656, (-0.776, -0.5361))
SAME = Difference(1234.567, 1234.561, 0.006, (-12.345, 12.357))
NAMES = "runs/a-run-with-a-long-name", "Qwen/Qwen3-4B-Instruct-2507"


def figures(**more):
    values = {
        "win_rate": 0.123, "ci95": (0.1011, 0.1453), "mean_steps": 4.5, "regret": 0.25,
        "rollouts": 64, "clusters": 8, "tasks": 32, "reward": -1234.5678,
        "reward_ci95": (-2345.678, -123.456), "reference": 0.25, "failures": 0,
    }  # fmt: skip
    return Evaluation(**values, **more)


def printed(table, width, capsys, monkeypatch):
    monkeypatch.setattr(console.out, "_width", width)
    console.print_table(table)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_a_comparison_keeps_every_number_whole(width, capsys, monkeypatch):
    result = Comparison(64, 8, 0, win_rate=LOSS, reward=SAME)
    text = printed(comparison_table(*NAMES, result, "compared"), width, capsys, monkeypatch)
    for number in ("12.3%", "77.9%", "-65.6% [-77.6%, -53.6%]", "+0.006 [-12.345, +12.357]"):
        assert number in text
    assert "…" not in text
    if width == 200:
        assert max(map(len, text.splitlines())) <= 200


@pytest.mark.parametrize("width", [30, 80])
def test_an_evaluation_of_many_environments_keeps_every_number_whole(width, capsys, monkeypatch):
    paths = [f"my_package.environments.Env{n}" for n in range(6)]
    table = evaluation_table("m", "e", figures(environments={one: figures() for one in paths}))
    lines = printed(table, width, capsys, monkeypatch).splitlines()
    assert sum(line.count("-2345.678 to -123.456") for line in lines) == 7
    assert sum(line.count("-1234.568") for line in lines) == 7


def test_names_wrap_where_the_numbers_leave_them_room(capsys, monkeypatch):
    result = Comparison(64, 8, 0, win_rate=LOSS, reward=LOSS)
    text = printed(comparison_table(*NAMES, result, "compared"), 80, capsys, monkeypatch)
    assert max(map(len, text.splitlines())) <= 80


def test_only_what_counts_actions_is_a_percentage(capsys, monkeypatch):
    metrics = {"bits": 0.106, "informing": 0.022, "malformed": 0.978}
    text = printed(evaluation_table("m", "e", figures(metrics=metrics)), 80, capsys, monkeypatch)
    values = {line.split("│")[1].strip(): line.split("│")[2].strip()
              for line in text.splitlines() if "per action" in line}  # fmt: skip
    assert values == {
        "bits, per action": "0.106", "informing, per action": "2.2%",
        "malformed, per action": "97.8%",
    }  # fmt: skip
