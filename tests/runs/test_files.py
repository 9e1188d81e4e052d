"""Metrics, summary, picture, and the paths of a run."""

import json
import math

import pytest

from agentsgym.evaluation import Evaluation
from agentsgym.runs.curve import draw_curve
from agentsgym.runs.files import (
    MetricsFile,
    RunDirectory,
    Summary,
    read_summary,
)


def evaluation(rate: float, *, reward: float | None = None) -> Evaluation:
    return Evaluation(
        rollouts=256,
        tasks=256,
        clusters=64,
        failures=0,
        win_rate=rate,
        ci95=(rate - 0.02, rate + 0.03),
        reward=rate if reward is None else reward,
        reward_ci95=(rate - 0.02, rate + 0.03),
        mean_steps=5.0,
        reference=1.0,
        regret=1.0 - rate,
        metrics={"unparsed": 0.01},
        stop_reasons={"win": 10},
    )


def test_metrics_are_strict_json(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.append("train", 1, {"reward": math.nan, "stop/done": math.inf, "loss": 0.5})
    line = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(line) == {
        "schema": 2, "step": 1, "phase": "train", "reward": None, "stop/done": None, "loss": 0.5
    }  # fmt: skip


def test_a_summary_is_read_back_with_the_times_of_its_phases(tmp_path):
    summary = Summary(name="x", seed=3, env="E", env_config={"hints": 2}, model="tiny")
    summary.before = evaluation(0.1)
    for phase, seconds in (("model", 1.5), ("rl", 2.0), ("rl", 0.5)):
        summary.add_time(phase, seconds)
    summary.write(tmp_path / "summary.json")
    again = read_summary(tmp_path / "summary.json")
    assert again == summary and again.seconds == 4.0 and again.phases == {"model": 1.5, "rl": 2.5}


@pytest.mark.parametrize(("tells_wins", "finished"), [(True, True), (False, False)])
def test_the_picture_is_drawn(tmp_path, tells_wins, finished):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    name = "win_rate" if tells_wins else "reward"
    for step in range(1, 30):
        metrics.append("train", step, {name: step / 40, "groups_without_signal": 0.3})
    metrics.append("eval", 10, {f"eval_{name}": 0.2, "nothing": None})
    summary = Summary(name="x", seed=0, env="E", env_config={}, model="tiny", steps=29)
    summary.before = evaluation(0.1)
    if finished:  # by rounding, an end of the interval is beyond the value
        summary.after = evaluation(0.6).model_copy(update={"ci95": (0.6 + 1e-16, 0.7)})
    if not tells_wins:
        summary.before = summary.before.model_copy(update={"win_rate": None, "ci95": None})
    draw_curve(tmp_path / "metrics.jsonl", summary, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_last_complete_checkpoint_is_found(tmp_path):
    directory = RunDirectory(tmp_path)
    assert directory.last_checkpoint() is None and not directory.is_run()
    for step in (2, 10):
        path = directory.checkpoints / f"checkpoint-{step}"
        path.mkdir(parents=True)
        (path / "trainer_state.json").write_text("{}")
    (directory.checkpoints / "checkpoint-12").mkdir()  # cut off while it was written
    assert directory.last_checkpoint() == (10, directory.checkpoints / "checkpoint-10")
