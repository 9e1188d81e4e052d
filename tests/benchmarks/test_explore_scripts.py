"""The parts of the benchmarks of hard starts and of transfer run; their figures mean nothing."""

import sys
from pathlib import Path

import pytest

from agentsgym.runs import load_config, train_run

pytest.importorskip("trl")

FOLDER = Path(__file__).resolve().parents[2] / "experiments"
SMALL = {"steps": 2, "batch_size": 8, "games_per_round": 16, "tokenizer_games": 16}


@pytest.fixture(scope="module")
def scripts():
    sys.path.insert(0, str(FOLDER))
    try:
        import explore_hard
        import explore_runs
        import explore_transfer

        yield explore_runs, explore_hard, explore_transfer
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def start(scripts, tmp_path_factory):
    runs, _, transfer = scripts
    return runs.made_start([*transfer.GAMES.values()], tmp_path_factory.mktemp("start"), **SMALL)


def test_a_start_of_several_games_is_made_once_and_reads_all_of_them(scripts, start):
    runs, _, _ = scripts
    _, tokenizer = runs.loaded(start)
    for name in ("look", "press", "test", "try", "say", "open"):
        assert any(name in token for token in tokenizer.get_vocab()), name
    before = (start / "model.safetensors").stat().st_mtime_ns
    runs.made_start([{}], start, **SMALL)
    assert (start / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("rescue", ["own successes, once", "2 choices first"])
def test_a_rescue_spends_its_trials_and_is_evaluated(scripts, start, rescue):
    _, hard, _ = scripts
    found = hard.run("uses 20 %", rescue, 0, start, updates=4, games=8)
    assert {"score", "looks", "uses", "malformed"} <= found.keys()
    assert len(found["training"]) == 4
    assert rescue in hard.table([found], "uses 20 %")


def test_transfer_measures_every_game_after_training_on_one(scripts, start, monkeypatch):
    _, _, transfer = scripts
    monkeypatch.setattr(transfer, "EVALUATED", 4)
    found = transfer.run("switches", 0, start, updates=1)
    assert found["tests"].keys() == transfer.TESTS.keys()
    assert transfer.table([found], "score").count("\n") == 2 + len(transfer.TESTS)


def test_the_documented_recipe_is_a_run_that_imitates_paid_games_then_learns(start, tmp_path):
    recipe = FOLDER.parent / "examples" / "explore_hard_start.yaml"
    small = {"warm_start.games": 12, "warm_start.epochs": 1, "train.max_steps": 1}
    given = {"model": str(start), "eval.episodes": 4, "output_dir": str(tmp_path / "run"), **small}
    summary = train_run(load_config(str(recipe), {**given, "signal_check": False}))
    assert summary.status == "finished"
    assert summary.model_figures["warm_start"]["games"] == {"games": 12, "reward": 1.0}
