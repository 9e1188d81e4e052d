"""Games in drawn languages: what is held out, their words, and their exact best play."""

import re

import pytest
from test_explore_numbers import enumerated

from agentsgym import ScriptedAgent
from agentsgym.envs import ConfigError
from agentsgym.envs.exploration.best_play import Claim
from agentsgym.envs.exploration.families import FAMILIES, families_of
from agentsgym.envs.exploration.language import PARTS, ROLES, lexicon, patterns
from agentsgym.envs.exploration.many import ExploreManyEnv

SAME_PARTS = {"words": "train", "patterns": "train"}


def make(**config):
    return ExploreManyEnv(None, {"explain_actions": False, **config})


def task_of(family, seed=0, **parts):
    return {"seed": seed, "family": family, **SAME_PARTS, **parts}


def rollout_of(env, task, agent):
    rollout = env.run_trial([task], agent).rollouts[0]
    assert rollout.error is None
    return rollout


def test_words_patterns_and_families_of_the_parts_are_disjoint():
    words = [set(lexicon(part)) for part in PARTS]
    assert len(set.union(*words)) == sum(map(len, words)) == 75 * 74
    assert [round(len(part) / (75 * 74), 1) for part in words] == [0.6, 0.1, 0.2]
    for role in ROLES:
        by_part = [patterns(role, part) for part in PARTS]
        assert [len(part) >= least for part, least in zip(by_part, (20, 5, 10), strict=True)] == [
            True
        ] * 3
        listed = [pattern for part in by_part for pattern in part]
        assert len(set(listed)) == len(listed), role
        slots = [sorted(set(re.findall(r"\{\w+\}", pattern))) for pattern in listed]
        assert role in ("route", "reply") or all(one == slots[0] for one in slots), role
    names = [name for part in PARTS for name in families_of(part)]
    assert sorted(names) == sorted(FAMILIES)


def test_patterns_that_are_held_out_have_only_words_that_are_trained():
    def words_of(part):
        every = (pattern for role in ROLES for pattern in patterns(role, part))
        return {word for pattern in every for word in re.findall(r"\w+", pattern)}

    assert words_of("test") | words_of("validate") <= words_of("train")


def test_tasks_of_training_and_evaluation():
    env = make(train_tasks=20, eval_tasks=20, eval_families=["sign", "validate"])
    train, held_out = env.get_train_dataset(), env.get_eval_dataset()
    assert {row["task_data"]["family"] for row in train} == set(families_of("train"))
    expected = {"sign", *families_of("validate")}
    assert {row["task_data"]["family"] for row in held_out} == expected
    assert {row["task_data"]["words"] for row in train} == {"train"}
    assert {row["task_data"]["words"] for row in held_out} == {"test"}


@pytest.mark.parametrize("family", FAMILIES)
def test_best_play_is_that_of_an_enumeration_and_needs_to_explore(family):
    env = make(spare_steps=0)
    task = task_of(family)
    plan = env.case(task).plan
    best, never = env.player_of(task).value(), env.player_of(task, informs=False).value()
    assert best == pytest.approx(1.0) and never < 0.7
    if plan.choices <= 6:
        assert enumerated(plan) == pytest.approx(best)
        assert enumerated(plan, informs=False) == pytest.approx(never)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_best_player_knows_everything_after_the_free_shot(family):
    env = make()
    tasks = [task_of(family, seed, words="test", patterns="test") for seed in range(30)]
    rollouts = env.run_trial(tasks, env.optimal_agent()).rollouts
    assert [rollout.final_reward for rollout in rollouts] == [1.0] * 30
    for rollout in rollouts:
        assert any(step.info["informing"] for step in rollout.episodes[0].steps)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_action_is_read_as_it_is_said(family):
    env = make()
    task = task_of(family, 5)
    state = env._initialize_episode("s", task)
    actions = env.admissible_actions(state)
    assert len(set(actions)) == len(actions)
    wording, question = env.case(task).wording, state["question"]
    for value, text in enumerate(wording.claims):
        assert wording.read_move(f"Action: {text.upper()}.", question) == Claim(value)
    for text, inform in wording.informs.items():
        assert wording.read_move(text, question) == inform
    assert wording.read_move("ka-ka", question) is None


def test_a_teacher_that_does_not_look_again_uses_what_it_knows():
    looks = {"teacher_looks": 0.5, "teacher_uses": 1.0, "episodes_per_trial": 4}
    tasks = [task_of("sign", seed) for seed in range(40)]
    again = {}
    for share in (0.0, None):
        env = make(**looks, teacher_looks_again=share)
        trials = env.run_trial(tasks, env.teacher_agent(seed=0)).rollouts
        steps = [[step for e in trial.episodes for step in e.steps] for trial in trials]
        known = [
            step.info["informing"]
            for trial in steps
            for before, step in enumerate(trial)
            if any(one.info["informing"] or one.info["win"] for one in trial[:before])
        ]
        again[share] = sum(known) / len(known)
    assert again[0.0] == 0
    assert again[None] == pytest.approx(0.5, abs=0.1)


def test_a_person_who_does_not_know_tells_nothing():
    env = make(spare_steps=0)
    task = task_of("caller")
    knows, other, _ = env.case(task).wording.informs
    rollouts = [rollout_of(env, task, ScriptedAgent([text] * 2)) for text in (knows, other)]
    assert [r.episodes[0].steps[0].info["informing"] for r in rollouts] == [True, False]
    reply = rollouts[1].episodes[1].messages[0]["content"]
    assert "nothing" in reply


def test_costs_noise_and_actions_are_drawn_and_said():
    env = make(look_cost=[0.0, 0.25], noise=[0.0, 0.2], spare_steps=2, families=["place"])
    seen = set()
    for seed in range(90):
        task = task_of("place", seed)
        plan = env.case(task).plan
        prompt = env._format_prompt(env._initialize_episode("s", task), 0)
        seen.add((plan.look_cost, plan.noise, plan.actions(0)))
        assert ("Looking costs 0.25." in prompt) == (plan.look_cost > 0)
        assert ("20%" in prompt) == (plan.noise > 0)
        assert (f"You have {plan.actions(0)} actions." in prompt) == (plan.actions(0) > 1)
        assert plan.actions(1) == 1
    assert len(seen) == 12  # of 2 costs, 2 noises, 3 numbers of actions


@pytest.mark.parametrize(
    "task",
    [{"seed": 0}, {"seed": 0, "family": "tower", **SAME_PARTS}, {"family": "place", **SAME_PARTS}],
)
def test_bad_tasks_are_refused(task):
    assert "task_data needs" in make().check_task(task)


def test_unknown_families_are_refused():
    with pytest.raises(ConfigError, match="tower"):
        make(families=["tower"])


@pytest.mark.parametrize("given", [{"noise": [1.5]}, {"noise": [1.0]}, {"noise": [-0.1]},
                                   {"look_cost": [-1.0]}], ids=str)  # fmt: skip
def test_drawn_values_have_the_range_of_a_single_one(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        ExploreManyEnv(None, given)
