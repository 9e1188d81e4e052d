"""Which generations of a run keep their rollouts."""

from pathlib import Path

import pytest

from agentsgym.runs.files.rollouts import KeepRollouts


def stored(*steps):
    return [(step, Path(f"{step}-{part}")) for step in steps for part in (0, 1)]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"last": 2}, [8, 10]),
        ({"every": 4}, [0, 4, 8, 10]),
        ({"last": 2, "every": 6}, [0, 6, 8, 10]),
    ],
)
def test_the_settings_name_the_generations_that_stay(settings, kept):
    files = stored(0, 2, 4, 6, 8, 10)  # of two processes
    gone = KeepRollouts(**settings).outdated(files)
    assert sorted({step for step, path in files if path not in gone}) == kept
    assert len(gone) == len(files) - 2 * len(kept)
