"""Every environment that comes with the package passes its check under its registered name."""

import pytest

from agentsgym.checks import check_env
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.extras import installed

SLOW = {"ALFWorld", "TextWorld", "TextArena/RushHour", "TextArena/Sokoban"}


def _named(name):
    return pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name


@pytest.mark.parametrize("name", map(_named, BUILTIN))
def test_it_passes_with_no_configuration(name):
    shipped = BUILTIN[name]
    if shipped.module is not None and not installed(shipped.module):
        pytest.skip(f"needs the extra {shipped.extra}")
    budget = 60.0 if name in SLOW else 3.0
    report = check_env(name, budget_seconds=budget).raise_if_failed()
    assert report.seconds < 120
    assert report["speed"].numbers["steps_per_second"] > 0
