"""Which generations of a run keep their rollouts."""

from pathlib import Path

import pytest

from agentsgym.runs.files.rollouts import KeepRollouts, RolloutFile


def stored(*steps, size=100):
    return [RolloutFile(0, step, Path(f"{step}-{part}"), size) for step in steps for part in (0, 1)]


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
    files = stored(0, 2, 4, 6, 8, 10)
    gone = KeepRollouts(**settings).outdated(files)
    assert sorted({one.step for one in files if one.path not in gone}) == kept
    assert len(gone) == len(files) - 2 * len(kept)


def test_the_first_process_deletes_what_processes_that_are_gone_have_left():
    """A resumed run may have fewer of them. One that wrote in the last two generations is there."""
    written = {0: range(5), 1: range(4), 2: range(3), 3: range(1)}
    files = [
        RolloutFile(rank, step, Path(f"{rank}-{step}"), 100)
        for rank, steps in written.items()
        for step in steps
    ]
    keep = KeepRollouts(last=2)
    gone = {rank: [path.name for path in keep.outdated(files, rank)] for rank in (0, 1, 2)}
    assert gone[0] == ["0-0", "0-1", "0-2", "2-0", "2-1", "2-2", "3-0"]
    assert gone[1] == ["1-0", "1-1", "1-2"]


def test_the_gigabytes_are_of_all_processes_together():
    files = [
        RolloutFile(rank, step, Path(f"{rank}-{step}"), 100)
        for rank in range(4)
        for step in range(6)
    ]
    keep = KeepRollouts(gigabytes=900e-9)
    gone = [path.name for rank in range(4) for path in keep.outdated(files, rank)]
    assert gone == [f"{rank}-{step}" for rank in range(4) for step in range(4)]
