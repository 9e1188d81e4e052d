"""The part of a run's picture that shows the episodes of trials."""

from contextlib import nullcontext

import pytest
from matplotlib.figure import Figure

from agentsgym.runs import curve
from agentsgym.runs.curve import draw_curve
from agentsgym.runs.files import MetricsFile, Summary
from viewer_runs import figures


def of_trials(*rewards):
    trial = {f"episode_{k}/reward": reward for k, reward in enumerate(rewards, 1)}
    return figures(win_rate=None, ci95=None, reward=0.5, trial=trial)


def summary(**evaluations):
    return Summary(name="x", seed=0, env="E", env_config={}, model="tiny", steps=3, **evaluations)


def test_the_picture_has_the_panel_for_trials_only(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    for step in range(1, 4):
        metrics.append("train", step, {"reward": 0.1 * step, "informing/free_shots": 0.5})
    widths = []
    for before in (of_trials(), of_trials(0.1, 0.2)):
        draw_curve(tmp_path / "metrics.jsonl", summary(before=before), tmp_path / "curve.png")
        header = (tmp_path / "curve.png").read_bytes()[16:24]
        widths.append(int.from_bytes(header[:4], "big"))
    assert widths == [1200, 1575]


@pytest.mark.parametrize(("reward", "expected"), [(0.9, True), (0.6, False)])
def test_a_reference_is_on_the_axis_of_its_unit(tmp_path, monkeypatch, reward, expected):
    """The plot is of win rates, and a reference is a reward: both are one if a win is 1."""
    texts = []
    monkeypatch.setattr(
        Figure,
        "savefig",
        lambda self, *_, **__: texts.extend(t.get_text() for t in self.axes[0].texts),
    )
    monkeypatch.setattr(curve, "replacing", nullcontext)
    before = figures(win_rate=0.9, ci95=(0.8, 1.0), reward=reward)
    draw_curve(tmp_path / "none.jsonl", summary(before=before), tmp_path / "curve.png")
    assert ("reference player" in texts) is expected and "90.0%" in texts
