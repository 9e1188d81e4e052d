"""`agentsgym credit` on a run directory that a trainer's sink wrote."""

import json
import sys

import pytest
from typer.testing import CliRunner

from agentsgym import ScriptedAgent
from agentsgym.cli.app import app
from agentsgym.report.credit import RECORDED
from agentsgym.runs.files import RolloutWriter, read_rollouts
from helpers import CountdownEnv


@pytest.fixture
def run_dir(tmp_path, plain_tokenizer):
    """One generation at step 3: two groups of two, rewards [0, 1] and [0, 3] by the lines said."""

    class Scored(CountdownEnv):
        def _step_episode(self, session_id, state, action):
            state, _, done, info = super()._step_episode(session_id, state, "ok")
            return state, float(action), done, info

    lines = iter(["0", "1", "0", "3", "0", "0", "0", "0"])
    agent = ScriptedAgent(lambda messages: next(lines))
    batch = Scored(plain_tokenizer).run_trial([{}, {}], agent, num_rollouts=2)
    RolloutWriter(tmp_path)(batch.rollouts, {"phase": "train", "step": 3, "advantages": None})
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, ["credit", *map(str, arguments)])


def test_credit_of_every_estimator(run_dir):
    result = call(run_dir, "--json")
    assert result.exit_code == 0, result.output
    lines = json.loads(result.stdout)
    assert [(x["rollout"], x["step"], x["action"], x["reward"]) for x in lines] == [
        (0, 0, "0", 0.0),
        (0, 1, "1", 1.0),
        (1, 0, "0", 0.0),
        (1, 1, "3", 3.0),
    ]
    assert [x["credit"]["rloo"] for x in lines] == [-2.0, -2.0, 2.0, 2.0]
    assert [x["credit"]["step_return"] for x in lines] == [-2.0, -2.0, 2.0, 2.0]
    assert [x["credit"]["reward"] for x in lines] == pytest.approx([0.0, 1.0, 0.0, 3.0])
    assert set(lines[0]["credit"]) == set(RECORDED)


def test_an_estimator_of_ones_own_is_named_by_its_path(run_dir, monkeypatch):
    """The run's own too, if it is found outside of the run."""
    here = run_dir.parent / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (here / "my_credit.py").write_text("def steps(table):\n    return table.step * 10.0\n")
    shown = call(run_dir, "-e", "my_credit.steps", "--json")
    assert shown.exit_code == 0, shown.output
    lines = json.loads(shown.stdout)
    assert [line["credit"] for line in lines[:2]] == [
        {"my_credit.steps": 0.0}, {"my_credit.steps": 10.0}
    ]  # fmt: skip
    (run_dir / "config.yaml").write_text(
        "env: Bandit\ntrain: {advantage_estimator: my_credit.steps}\n"
    )
    assert "my_credit.steps" in json.loads(call(run_dir, "--json").stdout)[0]["credit"]


def test_a_group_may_lie_in_the_shards_of_two_processes(run_dir):
    whole = call(run_dir, "--json", "-e", "grpo").stdout
    rollouts = list(read_rollouts(run_dir))
    for rank, mine in enumerate((rollouts[:1], rollouts[1:])):
        info = {"phase": "train", "step": 3, "advantages": None, "rank": rank}
        RolloutWriter(run_dir)(mine, info)
    assert call(run_dir, "--json", "-e", "grpo").stdout == whole


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--step", 4], "no generation at step 4"),
        (["--group", 9], "groups 0 to 1"),
        (["-e", "ppo"], "unknown advantage estimator"),
        (["-e", "trial_cv"], "which are not recorded; choose from grpo, rloo"),
    ],
)
def test_bad_usage_is_one_line(run_dir, arguments, words):
    result = call(run_dir, *arguments)
    assert result.exit_code == 2 and words in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_the_runs_own_estimator_is_first_and_named(run_dir):
    (run_dir / "config.yaml").write_text("train: {advantage_estimator: trial}\n")
    output = call(run_dir, "--step", 3, "--group", 1).stdout
    assert output.index("trial") < output.index("rloo") and "was trained with trial." in output
    assert "+0.000" in output


def test_a_directory_without_rollouts(tmp_path):
    (tmp_path / "config.yaml").write_text("train: {}\n")
    result = call(tmp_path)
    assert result.exit_code == 2 and "no training rollouts" in result.output
