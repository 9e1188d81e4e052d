"""The preset `explore`: what a run shows of it, and what it learns."""

import json
import re

import pytest

from agentsgym.cli.tables import summary_table
from agentsgym.runs import load_config, train_run
from agentsgym.runs.files import RunDirectory, read_rollouts
from agentsgym.runs.warm_start import new_model
from workplace import Notes

SMALL = {"warm_start.steps": 2, "warm_start.games_per_round": 64, "warm_start.tokenizer_games": 64}


def trained(tmp_path, **settings):
    return train_run(
        load_config("explore", {"threads": 1, "output_dir": str(tmp_path), **settings})
    )


def rows_of(table):
    columns = [list(column.cells) for column in table.columns]
    return {name: values for name, *values in zip(*columns, strict=True)}


def test_a_run_compares_with_best_play_with_and_without_exploring(tmp_path, invoke):
    settings = SMALL | {"signal_check": False, "train.max_steps": 1, "eval.rollouts": 64}
    summary = trained(tmp_path, **settings)
    assert summary.references["best without exploring"] == pytest.approx(0.25, abs=0.15)
    assert summary.after.reference == 1.0
    rows = rows_of(summary_table(summary))
    never = f"{summary.references['best without exploring']:.3f}"
    assert rows["best without exploring"] == [never, never]
    assert rows["reference player"] == ["1.000", "1.000"]
    assert "episode 2, reward" in rows
    assert "informing/free_shots" in summary.after.metrics
    assert RunDirectory(tmp_path).picture.is_file()

    shown = invoke("eval", str(tmp_path), "--rollouts", "64").stdout
    assert re.search(rf"reference player .* 1\.000 .*\n.*best without exploring .* {never} ", shown)
    evaluation = json.loads(invoke("eval", "agent:never", "--env", "Explore", "--json").stdout)
    assert evaluation["other_references"] == {"best without exploring": evaluation["reward"]}


def test_scores_of_other_players_that_fail_end_no_run(tmp_path, monkeypatch, caplog):
    from agentsgym.envs.exploration.env import ExploreEnv

    def fails(self, task_data):
        raise RuntimeError("no such player")

    monkeypatch.setattr(ExploreEnv, "other_references", fails)
    settings = SMALL | {"signal_check": False, "train.max_steps": 1, "eval.rollouts": 4}
    assert trained(tmp_path, **settings).references == {}
    assert "no such player" in caplog.text


def test_explore_many_imitates_longer_trials_than_it_trains_on(tmp_path):
    given = {**SMALL, "signal_check": False, "eval.rollouts": 16, "train.max_steps": 2}
    given |= {"train.per_device_train_batch_size": 16, "train.eval_steps": 1}
    config = load_config("explore-many", {**given, "output_dir": str(tmp_path)})
    notes = Notes()
    made = new_model(config, notes)
    assert "plays 64 games for the tokenizer" in notes.notes[0]
    assert {len(game.episodes) for game in made.games} == {4}
    train_run(config)
    rollouts = [*read_rollouts(tmp_path, "train"), *read_rollouts(tmp_path, "after")]
    assert {len(rollout.episodes) for rollout in rollouts} == {2}
    families = {rollout.task_data["family"] for rollout in rollouts}
    known = {*config.env_config["families"], *config.env_config["eval_families"]}
    assert families <= known and "stranger" in families


@pytest.mark.slow
def test_it_learns_to_look_and_credit_within_episodes_does_not(tmp_path):
    looks = trained(tmp_path / "trial").after
    assert looks.reward >= 0.9 and looks.metrics["informing/free_shots"] >= 0.9
    estimator = {"train.advantage_estimator": "step_return"}
    blind = trained(tmp_path / "step_return", **estimator).after
    assert blind.reward <= 0.35
