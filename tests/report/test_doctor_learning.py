"""The doctor's rules about runs that do not learn, on hand-made rollouts, metrics and evaluations.

Each case has numbers that can be computed by hand: eight tasks (groups) of four rollouts in each of
six generations, three at the beginning and three at the end.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

import of_rows
from agentsgym.evaluation.dependence import dependence
from agentsgym.report.doctor import Evidence, diagnose
from agentsgym.report.stored import Contents, RolloutSet, columns
from agentsgym.runs.files import StoredRollout
from viewer_runs import figures

STEPS, GROUPS, SIZE = 40, 8, 4


def rollout(group, index, turns, reward, *, free=0, reason="done"):
    """Episodes of one turn each if some are free, else one episode of all turns; one token each."""
    episodes = [[turn] for turn in turns] if free else [turns]
    made, spans, place = [], [], 0
    for number, part in enumerate(episodes):
        last_episode = number + 1 == len(episodes)
        steps = []
        for k, (text, action) in enumerate(part):
            last = k + 1 == len(part)
            earned = reward if last and last_episode else 0.0
            steps.append(of_rows.step_of(k, text, action, earned, last))
            spans.append((number, k, place + 1, place + 2))
            place += 2
        weight = 0.0 if number < free else 1.0
        made.append(of_rows.episode_of(*steps, index=number, weight=weight, reason=reason))
    row = of_rows.Drawn([0] * place, spans)
    return of_rows.rollout_of(made, [row], group=group, index=index)


def generation(step, play, advantage):
    lines = []
    for group in range(GROUPS):
        for index in range(SIZE):
            one = play(group, index)
            values = np.zeros(len(one.rows[0].token_ids))
            for span in one.rows[0].spans:
                values[span.start : span.stop] = advantage(group, index, span.episode)
            lines.append(StoredRollout(one, "train", step, (values,)))
    return Contents(RolloutSet("train", step, None, ()), lines, {}, None)


def fair(group, index, episode):
    """Advantages of both signs."""
    return (-1.0) ** index


def run(play, *, early=None, advantage=fair, players=None, after=0.25, reference=1.0, **metrics):
    """A run that stays at a reward of 0.25 (its evaluation before: 0.25 ± 0.02)."""
    lines = []
    for step in range(1, STEPS + 1):
        line = {"phase": "train", "step": step, "reward": 0.25 + 0.01 * (step % 3 - 1)}
        line |= {"entropy": 1.0, "update_size": 0.01, "learning_rate": 1e-3}
        own = {n.replace("__", "/"): v(step) if callable(v) else v for n, v in metrics.items()}
        lines.append(line | own)
    known = {"win_rate": None, "ci95": None, "reference": reference}
    before = figures(reward=0.25, reward_ci95=(0.21, 0.29), **known)
    ended = figures(reward=after, reward_ci95=(after - 0.04, after + 0.04), **known)
    return Evidence(
        metrics=columns(lines),
        early=[generation(step, early or play, advantage) for step in (0, 1, 2)],
        recent=[generation(step, play, advantage) for step in (39, 38, 37)],
        evaluations={"before": before, "after": ended},
        players=players or {},
    )


def late(early, recent):
    """A value of the first half and one of the second."""
    return lambda step: early if step <= STEPS // 2 else recent


def sees(group, index):
    """Two thirds of the actions follow from what is read; one of the four rollouts wins."""
    action = f"press {group % 4}" if index % 3 else f"press {index}"
    return rollout(group, index, [(f"The lamp is {group % 4}.", action)], float(index == 0))


def ignores(group, index):
    """What is read is another text in each task, and the four actions are the same in all."""
    return rollout(
        group, index, [(f"The lamp is {group % 4}.", f"press {index}")], float(index == group % 4)
    )


def blind(group, index):
    return rollout(
        group, index, [("The lamp is lit.", f"press {index}")], float(index == group % 4)
    )


def two_of_four(group, index):
    """Two actions, of which one wins in two of the eight tasks."""
    won = group < 2 and index % 2 == 0
    return rollout(group, index, [(f"Task {group}.", f"press {index % 2}")], float(won))


def long(group, index):
    """Three of four rollouts reach the limit after two actions, and only the other one wins."""
    turns = [(f"At {group}.", f"go {group}"), (f"At {group + 1}.", f"go {index} {group}")]
    return rollout(group, index, turns, float(index == 0), reason="max_steps" if index else "done")


def trial(group, index):
    """A free shot and a scored episode."""
    turns = [(f"Task {group}.", f"look {group}"), (f"It is {group}.", f"say {group % 2} {index}")]
    return rollout(group, index, turns, float(index == 0), free=1)


def rare(group, index):
    """The third rollout alone wins, in three of eight tasks: 6 of 24 neighbors differ."""
    won = index == 2 and group < 3
    return rollout(group, index, [(f"Task {group}.", f"press {group} {index}")], float(won))


def constant(group, index):
    return rollout(group, index, [(f"Task {group}.", f"press {group} {index}")], 0.5)


def same(group, index):
    return rollout(group, index, [(f"Task {group}.", "press 1")], float(index == 0))


CASES = {
    "reward_constant": (run(constant), "each of 192 readable rollouts on 48 tasks earns 0.5"),
    "observation_missing": (run(blind), "48 tasks open with the same text"),
    "actions_missing": (
        run(two_of_four),
        "2 actions are played, and 100% of their combinations in each of 24 groups; the best of a "
        "group earns 0.25 ± 0.18, best known play 1",
    ),
    "episodes_too_short": (
        run(long),
        "75% of 96 episodes end after 2 steps at the limit, and earn 0; the others earn 1",
    ),
    "reward_unreached": (
        run(trial, advantage=lambda g, i, e: fair(g, i, e) * e),
        "100% of 96 actions in scored episodes have an advantage; "
        "0% of 96 actions in free shots",
    ),
    "one_sign": (run(sees, advantage=lambda g, i, e: 0.5), "100% of 96 are above 0"),
    "rate_too_small": (
        run(sees, update_size=1e-4),
        "40 updates moved the weights by 0.40% of their size",
    ),
    "rate_too_large": (run(sees, update_size=0.5), "an update moves the weights by 50% of their"),
    "observation_unused": (run(ignores), "what was read tells 0.000 nats about the action"),
    "informing_vanishes": (
        run(sees, informing=late(0.4, 0.1)),
        "informing: 40% in steps 1 to 8, 10.0% in steps 33 to 40",
    ),
    "groups_too_small": (
        run(rare),
        "38% of 24 groups of 4 have a signal; two rollouts of a task differ in 25%, so 92% of",
    ),
    "known_by_heart": (
        run(sees, reward=late(0.3, 0.6)),
        "it earns 0.6 in steps 33 to 40, and 0.25 ± 0.04 on held-out tasks",
    ),
    "not_learning": (
        run(sees, players={"random": 0.2, "always 'press 1'": 0.25}),
        "the reward in training changes by",
    ),
}  # fmt: skip


def found(evidence):
    return {fault.fault: "; ".join(fault.evidence) for fault in diagnose(evidence)}


@pytest.mark.parametrize("fault", CASES)
def test_a_run_that_does_not_learn_is_told_the_cause_and_nothing_else(fault):
    evidence, text = CASES[fault]
    named = found(evidence)
    assert text in named.get(fault, ""), named
    beside = {
        "actions_missing": {"observation_unused", "no_signal"},
        "groups_too_small": {"no_signal"},
    }
    assert named.keys() - beside.get(fault, set()) == {fault, "not_learning"}


ALSO_LEARNED = {"reward_unreached", "known_by_heart", "not_learning"}


@pytest.mark.parametrize("fault", sorted(CASES.keys() - ALSO_LEARNED))
def test_a_run_that_has_learned_has_no_fault(fault):
    """The same rollouts, of a run that earns 0.95 of 1."""
    evidence, _ = CASES[fault]
    values = evidence.metrics["values"] | {"reward": [0.95] * STEPS}
    solved = Evidence(
        evidence.metrics | {"values": values},
        evidence.early, evidence.recent, evidence.evaluations, evidence.players,
    )  # fmt: skip
    assert "not_learning" not in found(solved) and fault not in found(solved)


@pytest.mark.parametrize("hints", [("higher", "lower"), ("no", "no")])
def test_a_guessing_game_opens_alike_and_misses_no_observation(hints):
    """After equal actions, on six tasks each, three are answered otherwise; or no sequence of
    actions is played on the eight tasks that it takes to compare."""

    def guesses(hint, best):
        def play(group, index):
            turns = [("Guess.", f"{index} {group}"), (hint, f"{index} {group}")]
            return rollout(group, index, turns, float(index == best))

        return play

    evidence = run(guesses(hints[1], 1), early=guesses(hints[0], 0))
    assert "observation_missing" not in found(evidence)


@pytest.mark.parametrize(("last", "is_named"), [(10, False), (30, True)])
def test_informing_actions_that_vanish_after_the_entropy_are_not_the_cause(last, is_named):
    """They are half as many from step 21 on; the entropy is 0.4 of the beginning's after `last`."""
    falls = {"informing": late(0.4, 0.1), "entropy": lambda step: 1.0 if step <= last else 0.4}
    assert ("informing_vanishes" in found(run(sees, **falls))) == is_named


def test_a_limit_that_nobody_gets_beyond_is_named_too():
    """Three of four episodes end at the limit, and no episode earns anything."""

    def nothing(group, index):
        turns = [(f"At {group}.", f"go {index} {group}")]
        return rollout(group, index, turns, 0.0, reason="max_steps" if index else "done")

    named = set(found(run(nothing)))
    assert {"reward_constant", "episodes_too_short"} <= named


def test_without_a_gradient_it_is_not_the_rate():
    assert "rate_too_small" not in found(run(sees, update_size=0.0))
    assert "rate_too_small" not in found(run(sees, update_size=0.001))  # 40 updates: 4 %


def test_a_rate_that_changes_what_is_played_is_not_too_small():
    """The weights move by 0.4 % in all, but 18 % of the actions become malformed, or the entropy
    falls."""
    assert "rate_too_small" in found(run(sees, update_size=1e-4, malformed=0.0))
    assert "rate_too_small" not in found(run(sees, update_size=1e-4, malformed=late(0.0, 0.18)))
    assert "rate_too_small" not in found(run(sees, update_size=1e-4, entropy=late(1.0, 0.5)))

    def back(step):
        return 0.1 if 12 <= step <= 20 else 1.0

    assert "rate_too_small" not in found(run(sees, update_size=1e-4, entropy=back))


def test_the_way_that_is_made_has_an_interval():
    """From 0.25 to 0.40 of 1.00, each ± 0.04: 0.15 ± 0.057 of 0.75."""
    low, high = run(sees, after=0.4).way
    error = 2 * math.hypot(0.02, 0.02)
    assert (low, high) == pytest.approx(((0.15 - error) / 0.75, (0.15 + error) / 0.75))


def test_half_of_the_way_is_not_stuck():
    evidence = run(ignores, after=0.7)
    assert not {"observation_unused", "not_learning"} & set(found(evidence))


def test_a_run_of_nineteen_steps_is_not_stuck():
    evidence = run(ignores)
    for steps in (19, 20):
        first = {name: evidence.metrics[name][:steps] for name in ("phase", "step")}
        first["values"] = {name: of[:steps] for name, of in evidence.metrics["values"].items()}
        named = found(replace(evidence, metrics=first))
        assert ("observation_unused" in named) == (steps == 20)


def test_a_constant_action_that_earns_as_much_is_named():
    players = {"random": 0.2, "always 'press 1'": 0.68}
    text = found(run(sees, after=0.7, players=players))["not_learning"]
    assert (
        "a player earns 0.68 by always 'press 1'" in text
        and "at the end it earns 0.7 ± 0.04" in text
    )
    assert "not_learning" not in found(run(sees, after=0.7, players={"always 'a'": 0.65}))


def test_missing_actions_are_named_until_a_group_plays_the_best():
    """More than half of the way is made with two of four actions; or at the end each group wins."""
    evidence = run(two_of_four, after=0.7)
    assert "actions_missing" in found(evidence)
    assert "actions_missing" not in found(run(sees, early=two_of_four, after=0.7))


def test_where_all_play_the_same_actions_none_need_be_missing():
    """Each rollout plays both actions, so their order or their number may be what is missing."""

    def orders(group, index):
        turns = [(f"Task {group}.", f"press {index % 2}"), ("Next.", f"press {1 - index % 2}")]
        return rollout(group, index, turns, float(group < 2 and index % 2 == 0))

    assert "actions_missing" not in found(run(orders))


def test_what_the_best_player_earns_says_when_a_run_is_solved():
    """0.25 is all that can be had: certain actions are the goal then."""
    gone = {"entropy": lambda step: 1.0 if step < STEPS / 2 else 0.001}
    assert "entropy_gone" in found(run(sees, reference=None, **gone))
    players = {"optimal": 0.26, "always 'a'": 0.1}
    assert "entropy_gone" not in found(run(sees, reference=None, players=players, **gone))


def test_all_that_is_shared_with_what_was_read():
    """Two texts, each with its own action: ln 2 of ln 2 nats; by chance about none of 200 pairs."""
    known = dependence([[(t, t) for t in "ab" * 100]])
    assert known.shared == pytest.approx(math.log(2)) == pytest.approx(known.entropy)
    assert known.chance < 0.02 and known.room > 0.67
    assert dependence([[(t, "x") for t in "ab"]]) is None


def test_texts_that_are_read_once_say_nothing():
    """Each of them seems to determine its action, also after shuffling."""
    known = dependence([[(str(n), "ab"[n % 2]) for n in range(50)]])
    assert known.shared == pytest.approx(math.log(2)) and known.room == pytest.approx(0, abs=1e-12)
