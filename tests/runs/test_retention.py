"""Which generations of a run keep their rollouts."""

from pathlib import Path

import pytest

from agentsgym.runs.files.rollouts import KeepRollouts, RolloutFile


def stored(*steps, size=100):
    return [RolloutFile(step, Path(f"{step}-{part}"), size) for step in steps for part in (0, 1)]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [0, 2, 4, 6, 8, 10]),
        ({"last": 2}, [8, 10]),
        ({"every": 4}, [0, 4, 8, 10]),
        ({"last": 2, "every": 6}, [0, 6, 8, 10]),
        ({"gigabytes": 700e-9}, [6, 8, 10]),
        ({"gigabytes": 1e-9}, [10]),
        ({"last": 4, "gigabytes": 500e-9}, [8, 10]),
        ({"every": 4, "gigabytes": 500e-9}, [8, 10]),
    ],
)
def test_the_settings_name_the_generations_that_stay(settings, kept):
    files = stored(0, 2, 4, 6, 8, 10)  # of two processes
    gone = KeepRollouts(**settings).outdated(files)
    assert sorted({one.step for one in files if one.path not in gone}) == kept
    assert len(gone) == len(files) - 2 * len(kept)
