"""The estimator "branch": numbers by hand, and exact expectations of its gradient."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.estimators.processes import Bias, compare, every_branched_group, gradients

from agentsgym.credit import concatenate, table_of
from agentsgym.credit.estimators.branch import branch
from credit.enumerable import noted_process, stopping_process, trial_process
from credit.played import rollout


def left(trunk, index, replayed, *episodes, **options):
    """A branch that repeats the first `replayed` steps of a trunk."""
    played = rollout(trunk.group, index, *episodes, **options)
    name = f"{trunk.session_id}@{replayed}-{index:016x}"
    return replace(played, session_id=name, replayed=replayed)


TRUNK = rollout(0, 0, [1.0, 0.0, 2.0])
OTHER = rollout(0, 3, [4.0, 0.0])
PLAYED = [TRUNK, left(TRUNK, 1, 1, [1.0, 6.0]), left(TRUNK, 2, 1, [1.0, 1.0]), OTHER]


def by_rollout(rollouts):
    played = table_of(rollouts)
    values = branch(played)
    return [values[played.rollout == r].tolist() for r in range(len(rollouts))]


def test_siblings_and_the_mean_of_a_trunk():
    """After the first step the continuations earn 2, 6 and 1, so the first step leads to 1 + 3,
    against the 4 of the other trunk, three times; that one's steps, once, against 4, and then
    without the 1 that had been earned before the second step."""
    assert by_rollout(PLAYED) == [
        [0, pytest.approx(2 - 3.5), pytest.approx(2 - 3.5)],
        [0, pytest.approx(6 - 1.5)],
        [0, pytest.approx(1 - 4)],
        [0, pytest.approx(-3)],
    ]
    poorer = [*PLAYED[:3], rollout(0, 3, [3.0])]
    assert by_rollout(poorer)[0][0] == pytest.approx(3.0)
    assert by_rollout(poorer)[3] == [pytest.approx(-1.0)]


def test_a_branch_that_failed_leaves_its_weight_to_the_others():
    played = [*PLAYED[:2], left(TRUNK, 2, 0, [1.0], failed=True), OTHER]
    trunk, other, failed, _ = by_rollout(played)
    assert trunk == [pytest.approx(3.0), pytest.approx(1.5 * -4), pytest.approx(1.5 * -4)]
    assert (other, failed) == ([0, pytest.approx(1.5 * 4)], [0])


def test_branches_of_the_free_shot_are_paid_in_the_scored_episode():
    """The trunk's second look leads to 0, a branch's to 1: this is what the looks are worth."""
    trunk = rollout(0, 0, [0.0, 0.0], [0.0], free_shots=1)
    other = rollout(0, 2, [0.0], [1.0], free_shots=1)
    played = [trunk, left(trunk, 1, 1, [0.0, 0.0], [1.0], free_shots=1), other]
    assert by_rollout(played) == [[-1, -1, -1], [0, 1, 1], [0.5, 0.5]]


def test_branches_from_the_beginning_are_rollouts_of_their_own():
    played = [rollout(0, 0, [2.0]), rollout(0, 2, [1.0])]
    played.insert(1, left(played[0], 1, 0, [5.0]))
    assert by_rollout(played) == [[2], [4], [-2.5]]


def test_branches_at_different_steps_are_refused():
    with pytest.raises(ValueError, match="rollout 0 of group 0 at different steps"):
        by_rollout([*PLAYED[:2], left(TRUNK, 2, 2, [1.0, 0.0, 1.0]), OTHER])


def test_tables_are_joined_with_their_trunks():
    tables = [table_of(PLAYED), table_of([replace(one, group=1) for one in PLAYED])]
    assert branch(concatenate(tables)).tolist() == branch(tables[0]).tolist() * 2


def steps_in(trajectory):
    return len({(move.episode, move.step) for move in trajectory})


def second(trajectory):
    return 1 if steps_in(trajectory) > 1 else 0


def by_first_action(trajectory):
    """The second or the third step, as the first action says."""
    number = 1 + trajectory[0].action % 2
    return number if steps_in(trajectory) > number else 0


def bias(process, split, branches=1) -> Bias:
    groups = every_branched_group(process, 2, branches, split)
    assert groups.chance.sum() == pytest.approx(1.0)
    coefficient = branch(groups.table)[groups.tokens.step] / (2 + 2 * branches)
    each = gradients(process, groups, coefficient)
    return compare(np.tensordot(groups.chance, each, 1), process.true_gradient())


@pytest.mark.parametrize("weights", [(0.0, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize("split", [second, by_first_action])
def test_its_expectation_is_the_gradient(weights, split):
    """Each of these trials has a second step, and a third one if the first did not stop."""
    assert bias(trial_process(weights), split).error < 1e-9


def test_its_expectation_is_the_gradient_with_two_branches():
    assert bias(trial_process((0.0, 1.0), 1), second, branches=2).error < 1e-9


@pytest.mark.parametrize("make", [stopping_process, noted_process])
def test_where_some_trunks_end_before_only_its_length_is_another(make):
    found = bias(make(), by_first_action)
    assert found.turned < 1e-9
    assert 1 < found.scale < 1.5


def test_a_split_that_looks_ahead_is_biased():
    assert bias(trial_process((0.0, 1.0)), lambda t: steps_in(t) - 1).turned > 0.1


def test_the_continuations_of_another_trunk_count_as_one_more_sibling():
    """The trunk's earn 2 and 6, the other's 1 and 2: against 6 and 1.5, and 2 and 1.5."""
    other = rollout(0, 2, [0.0, 1.0])
    played = [*PLAYED[:2], other, left(other, 3, 1, [0.0, 2.0])]
    after = [values[1:] for values in by_rollout(played)]
    assert after[0] == [pytest.approx(2 - 3.75)] * 2
    assert after[1:] == [[pytest.approx(6 - 1.75)], [pytest.approx(-2)], [pytest.approx(-0.5)]]
