"""The preset `explore`: what a run shows of it, and what it learns."""

import json
import re

import pytest

from agentsgym.cli.tables import summary_table
from agentsgym.runs import load_config, train_run
from agentsgym.runs.evaluate import held_out_requests, other_references
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.from_config import make_env
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
    assert rows["random player"] == [f"{summary.players['random']:.3f}"] * 2
    assert "episode 2, reward" in rows
    assert "informing/free_shots" in summary.after.metrics
    assert RunDirectory(tmp_path).picture.is_file()

    shown = invoke("eval", str(tmp_path), "--rollouts", "64").stdout
    assert re.search(rf"reference player .* 1\.000 .*\n.*best without exploring .* {never} ", shown)
    evaluation = json.loads(invoke("eval", "agent:never", "--env", "Explore", "--json").stdout)
    assert evaluation["other_references"] == {"best without exploring": evaluation["reward"]}


def test_scores_of_other_players_that_fail_end_no_run(monkeypatch, caplog):
    from agentsgym.envs.exploration.env import ExploreEnv

    def fails(self, task_data):
        raise RuntimeError("no such player")

    monkeypatch.setattr(ExploreEnv, "other_references", fails)
    run = load_config("explore", {"eval.rollouts": 4})
    assert other_references(make_env(run), held_out_requests(run)) == {}
    assert "no such player" in caplog.text


@pytest.mark.slow
def test_explore_many_imitates_longer_trials_than_it_trains_on(tmp_path):
    config = load_config("explore-many", {**SMALL, "output_dir": str(tmp_path)})
    notes = Notes()
    made = new_model(config, notes)
    assert "plays 64 games for the tokenizer" in notes.notes[0]
    assert {len(game.episodes) for game in made.games} == {4}
    assert make_env(config).config.episodes_per_trial == 2
    families = {one.task_data["family"] for one in held_out_requests(config)}
    known = {*config.env_config["families"], *config.env_config["eval_families"]}
    assert families <= known and "stranger" in families


@pytest.mark.slow
def test_it_learns_to_look_and_credit_within_episodes_does_not(tmp_path):
    looks = trained(tmp_path / "trial").after
    assert looks.reward >= 0.9 and looks.metrics["informing/free_shots"] >= 0.9
    estimator = {"train.advantage_estimator": "step_return"}
    blind = trained(tmp_path / "step_return", **estimator).after
    assert blind.reward <= 0.35
