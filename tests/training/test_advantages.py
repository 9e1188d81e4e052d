"""What ranks exchange for advantages: nothing, where no group is compared with another one."""

from types import SimpleNamespace

import numpy as np
import pytest

from agentsgym.credit import ESTIMATORS, credit_steps, table_of
from agentsgym.training.advantages import _compares_groups
from of_rows import redrawn
from training.cells import trial_of

GROUPS = [
    [trial_of(0, (7, 8), (7, 9)), trial_of(1, (7, 8), (30,)), trial_of(2, (4,), (5,))],
    [redrawn(trial_of(index, (9 * index, 20), (3,)), group=1) for index in (1, 2)],
]


def settings(name, **options):
    return SimpleNamespace(advantage_estimator=name, estimator_options=options)


@pytest.mark.parametrize("name", [n for n, one in ESTIMATORS.items() if one.per == "step"])
def test_groups_are_credited_alone_unless_they_are_compared(name):
    whole = credit_steps(table_of([r for group in GROUPS for r in group]), name).value
    alone = np.concatenate([credit_steps(table_of(group), name).value for group in GROUPS])
    assert whole.any()
    assert np.array_equal(whole, alone) == (not _compares_groups(settings(name)))


def test_what_is_scaled_over_the_batch_or_not_ours_compares_groups():
    assert _compares_groups(settings("grpo", scale_rewards="batch"))
    assert _compares_groups(settings("agentsgym.credit.estimators.rloo.rloo"))
    assert not _compares_groups(settings("reward"))
