"""The measured effect of an action, and how far credit goes together with it: by hand."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsgym import EnvPool, ScriptedAgent
from agentsgym.evaluation.dependence import correlation
from agentsgym.evaluation.effects import Alternative, effect_of, same_answer
from agentsgym.evaluation.intervals import wilson
from agentsgym.rollout import play
from agentsgym.types import RolloutRequest
from helpers import CountdownEnv


class PaidEnv(CountdownEnv):
    """Two actions, each a number and worth as much."""

    def _step_episode(self, session_id, state, action):
        state, _, done, info = super()._step_episode(session_id, state, "ok")
        return state, float(action), done, info | {"informing": action == "1"}


@pytest.fixture
def env(plain_tokenizer):
    return PaidEnv(plain_tokenizer)


@pytest.fixture
def trunk(env):
    (rollout,) = env.run_trial([{}], ScriptedAgent(["1", "0"])).rollouts
    return rollout


def branches(env, trunk, node, *scripts):
    """Branches that answer node `node` and all that follow so, by their number."""
    return {
        k: play(
            [RolloutRequest.branch(trunk, node, k, k)], ScriptedAgent(script), EnvPool(envs=[env])
        )[0]
        for k, script in enumerate(scripts)
    }


def test_the_effect_is_what_is_earned_after_the_action_less_what_is_earned_before(env, trunk):
    """3 - 5 with the first noise; the second play before it gave the same answer."""
    before = branches(env, trunk, 0, ["3", "2"], ["1", "1"])
    after = branches(env, trunk, 1, ["2"])
    found = effect_of(trunk, 0, before, after)
    assert (found.effect, found.pairs, found.informing, found.matters) == (-1.0, 2, True, False)
    assert found.interval == pytest.approx((-1 - 12.7062, -1 + 12.7062), abs=1e-4)
    assert found.alternatives == (Alternative("1", 1, 2.0), Alternative("3", 1, 5.0))
    assert (found.episode, found.step, found.action) == (0, 0, "1")


def test_after_the_last_answer_comes_the_rollouts_own_end(env, trunk):
    before = branches(env, trunk, 1, ["4"], ["0"], ["4"])
    found = effect_of(trunk, 1, before, {})
    assert found.effect == pytest.approx(-8 / 3) and found.pairs == 3
    assert found.alternatives == (Alternative("4", 2, 5.0), Alternative("0", 1, 1.0))


def test_differences_that_are_all_alike_are_no_certainty(env, trunk):
    before = branches(env, trunk, 1, *[["1"]] * 4)
    unseen = wilson(0, 4)[1]
    bounded = effect_of(trunk, 1, before, {}, width=1.0)
    assert bounded.effect == -1.0 and bounded.matters
    assert bounded.interval == pytest.approx((-1.0, -1.0 + 2 * unseen))
    unbounded = effect_of(trunk, 1, before, {})
    assert unbounded.interval is None and not unbounded.matters
    same = effect_of(trunk, 1, branches(env, trunk, 1, *[["0"]] * 4), {}, width=1.0)
    assert same.effect == 0.0 and same.interval == pytest.approx((-unseen, unseen))


def test_a_branch_that_failed_is_no_pair(env, trunk):
    before = branches(env, trunk, 0, ["nothing", "0"], ["1", "1"])
    assert before[0].failed and not same_answer(trunk, 0, before[0])
    found = effect_of(trunk, 0, before, branches(env, trunk, 1, ["0"]))
    assert (
        found.pairs == 1
        and found.interval is None
        and found.effect == 0.0
        and len(found.alternatives) == 1
    )
    none = effect_of(trunk, 0, {0: before[0]}, branches(env, trunk, 1, ["0"]))
    assert math.isnan(none.effect) and none.pairs == 0


def test_a_correlation_by_hand():
    """x - 2 = -1, 0, 1 and y - 2 = -1, 1, 0: r = 1/2; without the k-th: -1, 1, 1."""
    found = correlation([1, 2, 3], [1, 3, 2], "abc")
    assert found.value == pytest.approx(0.5) and found.count == 3
    assert found.low < -0.99 and found.high > 0.99
    assert math.isnan(correlation([1, 2, 3], [1, 3, 2], "aab").low)
    assert math.isnan(correlation([], [], []).value)
    assert math.isnan(correlation([1, 1, 1], [1, 3, 2], "abc").value)
    assert correlation([1, 2, 3, 4], [2, 4, 6, 8], "abcd").value == pytest.approx(1.0)


WHOLE = st.integers(-50, 50)
NUMBERS = st.lists(st.tuples(WHOLE, WHOLE), min_size=6, max_size=12)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(NUMBERS, st.floats(0.1, 10), st.floats(-10, 10))
def test_a_correlation_depends_on_no_scale(pairs, factor, shift):
    x, y = zip(*pairs, strict=True)
    tasks = [k % 4 for k in range(len(pairs))]
    one = correlation(x, y, tasks)
    other = correlation(y, [factor * value + shift for value in x], tasks)
    if math.isfinite(one.value) and math.isfinite(other.value):
        assert other.value == pytest.approx(one.value, abs=1e-5)
        assert (one.low <= one.value + 1e-9 and one.value <= one.high + 1e-9) or math.isnan(one.low)
