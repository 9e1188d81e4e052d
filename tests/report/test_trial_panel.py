"""The part of a run's picture that shows the episodes of trials."""

from contextlib import nullcontext

import pytest
from matplotlib.figure import Figure

from agentsgym.runs import curve
from agentsgym.runs.curve import draw_curve
from agentsgym.runs.files import Summary
from viewer_runs import figures


def summary(**evaluations):
    return Summary(name="x", seed=0, env="E", env_config={}, model="tiny", steps=3, **evaluations)


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
