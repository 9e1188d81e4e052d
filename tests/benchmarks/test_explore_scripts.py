"""The recipe for a hard start runs, from a start that the experiments make."""

from pathlib import Path

import pytest

from agentsgym.runs import load_config, train_run

pytest.importorskip("trl")

FOLDER = Path(__file__).resolve().parents[2] / "experiments"
SMALL = {"steps": 2, "batch_size": 8, "games_per_round": 16, "tokenizer_games": 16}


def test_the_documented_recipe_is_a_run_that_imitates_paid_games_then_learns(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import explore_runs
    import explore_transfer

    games = [*explore_transfer.GAMES.values()]
    start = explore_runs.made_start(games, tmp_path / "start", **SMALL)
    recipe = FOLDER.parent / "examples" / "explore_hard_start.yaml"
    small = {"warm_start.games": 12, "warm_start.epochs": 1, "train.max_steps": 1}
    given = {"model": str(start), "eval.rollouts": 4, "output_dir": str(tmp_path / "run"), **small}
    summary = train_run(load_config(str(recipe), {**given, "signal_check": False}))
    assert summary.status == "finished"
    assert summary.model_figures["warm_start"]["games"] == {"games": 12, "reward": 1.0}
