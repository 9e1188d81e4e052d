"""What holds for every estimator, whatever was played."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentsgym import RolloutBatch
from agentsgym.credit import ESTIMATORS, advantages, table_of
from agentsgym.credit.baselines import actions_before
from credit.played import OF_BATCHES, Did, rollout

# Name and options: every estimator in all its variants, and once with each discount and weight.
NUMBERS = {"gamma": 0.5, "trial_gamma": 0.5, "step_weight": 2.0, "lam": 0.5}
GRID = [(e.name, dict(variant.options)) for e in ESTIMATORS.values() for variant in e.variants]
GRID += [
    (e.name, {option: value for option, value in NUMBERS.items() if option in e.options})
    for e in ESTIMATORS.values()
    if set(NUMBERS) & set(e.options)
]
quick = settings(max_examples=20, deadline=None)


def test_the_grid_holds_every_option_of_every_estimator():
    """A new option needs a variant, or a number of its own here."""
    for name, estimator in ESTIMATORS.items():
        used = {option for other, options in GRID if other == name for option in options}
        assert used == set(estimator.options), name


@dataclass(frozen=True)
class Plan:
    """What one rollout did; `play` makes the rollout of it."""

    group: int
    index: int
    episodes: tuple[tuple[Did, ...], ...]
    free_shots: int
    failed: bool
    env: str
    row_per_episode: bool

    def play(self, **options):
        return rollout(
            self.group,
            self.index,
            *self.episodes,
            free_shots=self.free_shots,
            failed=self.failed,
            env=self.env,
            **({"row_per_episode": self.row_per_episode} | options),
        )


# Quarters are exact in binary, so that equal rewards stay equal under addition.
quarters = st.integers(-8, 8).map(lambda n: n / 4)
dids = st.builds(Did, quarters, st.integers(0, 3), st.sampled_from("ABC"))
dids |= st.builds(Did, st.just(0.0), st.integers(0, 3), kind=st.just("reflection"))


@st.composite
def batches(draw, least_steps=0):
    """One to three groups of one to four rollouts with one or two episodes each."""
    number = draw(st.integers(1, 2))
    episode = st.lists(dids, min_size=least_steps, max_size=3).map(tuple)
    plans = []
    for group in range(draw(st.integers(1, 3))):
        env = draw(st.sampled_from(["Here", "There"]))
        free = draw(st.integers(0, number - 1))
        for index in range(draw(st.integers(1, 4))):
            episodes = draw(st.lists(episode, min_size=number, max_size=number).map(tuple))
            failed = draw(st.integers(0, 4)) == 0
            plans.append(Plan(group, index, episodes, free, failed, env, draw(st.booleans())))
    return plans


def credit(plans, name, options, **how):
    """The advantages of each rollout's agent tokens, keyed by (group, index)."""
    batch = RolloutBatch([plan.play(**how) for plan in plans])
    arrays = iter(advantages(batch, name, **options))
    result = {}
    for one in batch.rollouts:
        result[one.group, one.index] = [
            value
            for row in one.rows
            for value, agent in zip(next(arrays), row.agent_token_mask, strict=True)
            if agent
        ]
    return result


def same(one, other):
    assert one.keys() == other.keys()
    for key in one:
        assert one[key] == pytest.approx(other[key], abs=1e-9), key


@quick
@given(plans=batches(), padding=st.integers(1, 4))
def test_padding_changes_nothing(plans, padding):
    for name, options in GRID:
        same(credit(plans, name, options), credit(plans, name, options, padding=padding))


@quick
@given(data=st.data(), plans=batches())
def test_order_changes_nothing(plans, data):
    """Neither that of groups nor that of rollouts, nor what the groups are called."""
    mixed = data.draw(st.permutations(plans))
    renamed = [replace(plan, group=10 - plan.group) for plan in plans]
    for name, options in GRID:
        first = credit(plans, name, options)
        same(first, credit(mixed, name, options))
        values = credit(renamed, name, options)
        same(first, {(10 - g, i): v for (g, i), v in values.items()})


@quick
@given(plans=batches())
def test_tokens_that_are_not_the_agents_are_exactly_zero(plans):
    batch = RolloutBatch([plan.play(padding=2) for plan in plans])
    for name, options in GRID:
        arrays = advantages(batch, name, **options)
        assert len(arrays) == len(batch.rows)
        for row, values in zip(batch.rows, arrays, strict=True):
            assert values.shape == (len(row.token_ids),) and values.dtype == np.float64
            assert not values[np.array(row.agent_token_mask) == 0].any()


@quick
@given(plans=batches(), rewards=st.lists(quarters, min_size=1, max_size=3))
def test_a_failed_rollout_influences_nobody(plans, rewards):
    """Nor gets anything itself, whether it is there or not and whatever it earned."""
    one = tuple(Did(reward, anchor="A") for reward in rewards)
    failed = [
        replace(like, index=99, episodes=(one,) * len(like.episodes), failed=True)
        for like in {plan.group: plan for plan in plans}.values()
    ]
    for name, options in GRID:
        values = credit([*failed, *plans], name, options)
        assert not any(any(v) for (_, index), v in values.items() if index == 99)
        others = {key: v for key, v in values.items() if key[1] != 99}
        same(credit(plans, name, options), others)


@quick
@given(plans=batches())
def test_placement_changes_nothing_but_reward(plans):
    for name, options in GRID:
        spread, broadcast, last = [
            credit(plans, name, options, placement=placement)
            for placement in ("spread", "broadcast", "last_token")
        ]
        if ESTIMATORS[name].per == "step":
            same(spread, broadcast)
            same(spread, last)
            continue
        for plan in plans:
            scored = [] if plan.failed else plan.episodes[plan.free_shots :]
            steps = [d for episode in scored for d in episode]
            key = plan.group, plan.index
            once = sum(d.reward for d in steps if d.tokens)
            assert sum(spread[key]) == pytest.approx(once)
            assert sum(last[key]) == pytest.approx(once)
            assert sum(broadcast[key]) == pytest.approx(sum(d.reward * d.tokens for d in steps))


@quick
@given(plans=batches())
def test_one_row_or_one_per_episode(plans):
    for name, options in GRID:
        same(
            credit(plans, name, options, row_per_episode=False),
            credit(plans, name, options, row_per_episode=True),
        )


def matched(plans, name):
    """Whether a step has somebody to be compared with, by (group, index, episode, step)."""
    table = table_of([plan.play() for plan in plans])
    where = actions_before(table) if name == "step_return" else np.zeros_like(table.step)
    notes = table.reflection & (name == "step_return")
    keys = list(zip(table.group[table.rollout], table.episode, where, notes, strict=True))
    live = table.live[table.rollout]
    owners = {}
    for key, owner, alive in zip(keys, table.rollout, live, strict=True):
        owners.setdefault(key, set()).update({owner} if alive else ())
    places = [(plans[r].group, plans[r].index) for r in table.rollout]
    at = zip(places, table.episode, table.step, keys, strict=True)
    return {(*place, e, s): len(owners[key]) > 1 for place, e, s, key in at}


def shifted(plans, groups, constant):
    """The groups' rollouts with `constant` more on the last step of each episode."""

    def more(episode):
        return (*episode[:-1], replace(episode[-1], reward=episode[-1].reward + constant))

    return [
        replace(plan, episodes=tuple(map(more, plan.episodes))) if plan.group in groups else plan
        for plan in plans
    ]


def by_token(plan):
    """(episode, step) of each agent token."""
    return [
        (e, s)
        for e, episode in enumerate(plan.episodes)
        for s, did in enumerate(episode)
        for _ in range(did.tokens)
    ]


@quick
@given(plans=batches(least_steps=1), constant=quarters)
def test_a_constant_on_a_groups_rewards_changes_no_relative_advantage(plans, constant):
    """Domain: undiscounted, and episodes that were played (a constant has nowhere to go in one
    without steps); not where the batch is the baseline.

    "rloo", "grpo" and estimators by state: always, but scaled by the batch only where all groups
    of the environment get the constant, since the divisor is the deviation of raw rewards.
    "step_return", "trial", "trial_cv", "branch": where another live rollout of the group got to
    that step, or episode; elsewhere the baseline is 0 by definition.
    """
    for name, options in GRID:
        entry = ESTIMATORS[name]
        if entry.reads_values or entry.per == "token" or name in OF_BATCHES or "gamma" in options:
            continue
        groups = {p.group for p in plans} if options.get("scale_rewards") == "batch" else {0}
        before = credit(plans, name, options)
        after = credit(shifted(plans, groups, constant), name, options)
        if name not in ("step_return", "trial", "trial_cv", "branch"):
            same(before, after)
            continue
        compared = matched(plans, name)
        for plan in plans:
            key = plan.group, plan.index
            tokens = [] if plan.failed else by_token(plan)
            for at, old, new in zip(tokens, before[key], after[key], strict=True):
                if compared[(*key, *at)]:
                    assert new == pytest.approx(old, abs=1e-9)


@quick
@given(plans=batches(least_steps=1))
def test_relative_advantages_of_the_same_state_sum_to_zero_over_a_group(plans):
    """Of each rollout the first step, taken in the same state by all."""
    starts = [
        replace(
            plan,
            episodes=((replace(plan.episodes[0][0], tokens=1, anchor="start", kind="action"),),),
            free_shots=0,
        )
        for plan in plans
    ]
    for name, options in GRID:
        if ESTIMATORS[name].per == "token" or name in (*OF_BATCHES, "gae"):
            continue
        values = credit(starts, name, options)
        for group in {plan.group for plan in plans}:
            total = sum(sum(v) for key, v in values.items() if key[0] == group)
            assert total == pytest.approx(0.0, abs=1e-9)


# -- rounding -------------------------------------------------------------------------------------

sizes = st.sampled_from([1e-9, 1.0, 1e6, 1e20])
amounts = st.floats(-1, 1, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)
whole_rollouts = ("grpo", "rloo")


@quick
@given(
    data=st.data(),
    size=sizes,
    earned=st.lists(amounts, min_size=2, max_size=6),
    other=st.lists(quarters, min_size=2, max_size=3),
)
def test_the_order_in_which_the_same_was_earned_is_no_difference(data, size, earned, other):
    """Exactly 0, whatever is divided by, and whatever another group earns."""
    orders = data.draw(st.lists(st.permutations(earned), min_size=2, max_size=4))
    plans = [
        Plan(0, i, (tuple(Did(size * x / 3) for x in order),), 0, False, "Here", False)
        for i, order in enumerate(orders)
    ]
    plans += [Plan(1, i, ((Did(x),),), 0, False, "Here", False) for i, x in enumerate(other)]
    for name, options in GRID:
        if name in whole_rollouts:
            values = credit(plans, name, options)
            assert not any(any(v) for (group, _), v in values.items() if group == 0), name


@quick
@given(
    size=sizes,
    earned=amounts,
    errors=st.lists(st.integers(-4, 4), min_size=2, max_size=4),
    small=st.sampled_from([0.01, 1.0]),
)
@example(size=1.0, earned=-1.0, errors=[0, -1], small=0.01)
def test_rewards_that_differ_by_rounding_are_equal(size, earned, errors, small):
    """For every estimator that compares; a difference of a millionth is one."""

    def played(rewards):
        return [
            Plan(0, i, ((Did(size * (2.0 + x), anchor="A"),),), 0, False, "Here", False)
            for i, x in enumerate(rewards)
        ]

    for name, options in GRID:
        if ESTIMATORS[name].per == "step" and not ESTIMATORS[name].reads_values:
            equal = credit(played([earned + error * 2e-16 for error in errors]), name, options)
            assert not any(any(v) for v in equal.values()), name
    for name in whole_rollouts:
        differ = credit(played([earned, earned + 1e-6 * small]), name, {})
        assert all(all(v) for v in differ.values())


@quick
@given(plans=batches(), number=st.integers(2, 4))
def test_equal_rollouts_give_no_signal(plans, number):
    """Whatever they earned, and at which steps; not where batches, critics, or a rollout's own
    steps in the same state are the baseline, nor with a discount, which tells apart two notes that
    follow each other."""
    equal = [replace(plans[0], index=index, failed=False) for index in range(number)]
    for name, options in GRID:
        if ESTIMATORS[name].per != "step" or name in (*OF_BATCHES, "gae", "gigpo"):
            continue
        if "gamma" not in options:
            values = credit(equal, name, options).values()
            assert not any(map(np.any, values)), (name, options)


ended = st.tuples(st.integers(0, 2), quarters)
"""An episode whose last action alone earns: how many come before it, and what it earns."""


@quick
@given(played=st.lists(st.tuples(ended, ended, ended), min_size=2, max_size=4))
def test_where_ends_alone_earn_trial_is_what_follows_less_the_mean_of_the_others(played):
    steps = [[[0.0] * before + [end] for before, end in one] for one in played]
    rollouts = [rollout(0, k, *episodes, free_shots=1) for k, episodes in enumerate(steps)]
    expected = []
    for k, one in enumerate(played):
        for first, (before, _) in zip((1, 1, 2), one, strict=True):
            rest = [sum(end for _, end in other[first:]) / 2 for other in played]
            others = rest[:k] + rest[k + 1 :]
            expected += [rest[k] - sum(others) / len(others)] * (before + 1)
    assert ESTIMATORS["trial"](table_of(rollouts)).tolist() == pytest.approx(expected)
