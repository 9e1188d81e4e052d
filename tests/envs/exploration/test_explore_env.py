"""The exploration games as an environment: their words, rewards, marks, tasks and settings."""

import re

import pytest

from agentsgym import ScriptedAgent
from agentsgym.envs.exploration.best_play import Claim, Inform
from agentsgym.envs.exploration.env import GAMES, ExploreEnv, Question
from expectations import explored


def make(**config):
    return ExploreEnv(None, config)


def play(env, task, agent):
    rollout = env.run_trial([task], agent).rollouts[0]
    assert rollout.error is None
    return rollout


def steps_of(rollout):
    return [step for e in rollout.episodes for step in e.steps if step.kind == "action"]


def right_action(env, task, episode=1):
    """The paid action that is right in an episode of a one-fact game."""
    value = env._initialize_episode("s", task)["hidden"][0]
    question = env.question(task, episode)
    return env.game.say(Claim(value), question)


def test_what_a_trial_earns():
    env, task = make(), {"seed": 0}
    rollout = play(env, task, ScriptedAgent(["Look.", f"{right_action(env, task)}!"]))
    assert [step.reward for step in steps_of(rollout)] == [0.0, 1.0]
    assert [step.info["informing"] for step in steps_of(rollout)] == [True, False]
    assert [step.info["win"] for step in steps_of(rollout)] == [False, True]
    assert [e.stop_reason for e in rollout.episodes] == ["actions_used", "right"]
    assert rollout.final_reward == 1.0


@pytest.mark.parametrize("facts", [1, 2])
@pytest.mark.parametrize("game", GAMES)
def test_every_action_is_read_as_it_is_said(game, facts):
    env = make(game=game, facts=facts)
    for question in (Question(0, 0), Question(facts - 1, 5)):
        for value in range(8):
            text = env.game.say(Claim(value), question)
            assert env.game.read_move(f"Action: {text.upper()}.", question) == Claim(value)
        for text, inform in env.game.informs.items():
            assert env.game.read_move(f"I think\n{text}", question) == inform
            assert env.game.say(inform, question) == text
    state = env._initialize_episode("s", {"seed": 1})
    actions = env.admissible_actions(state)
    assert len(set(actions)) == len(actions) == 8 + len(env.game.informs)


@pytest.mark.parametrize(
    ("text", "move"),
    [
        ("open the box 3", Claim(2)),
        ("Look at the boxes", Inform(0, 0)),
        ("open 9", None),
        ("look\nopen 3", None),
        ("not open 3\nopen 3", None),
        ("", None),
    ],
)
def test_reading(text, move):
    assert make().game.read_move(text, Question()) == move


def test_malformed_actions_lose_the_action():
    env = make(max_steps_per_episode=3, wrong_reward=-0.5)
    rollout = play(env, {"seed": 0}, ScriptedAgent(["peek", "look", "hm", "open 1", "open 1"]))
    steps = rollout.episodes[0].steps
    assert [step.malformed for step in steps] == [True, False, True]
    assert [step.reward for step in steps] == [-0.5, 0.0, -0.5]
    assert steps[0].info["informing"] is False and steps[1].observation == "No such action."


def test_a_claim_ends_the_episode_and_a_look_does_not():
    env = make(max_steps_per_episode=3, look_cost=0.1)
    right = right_action(env, {"seed": 0})
    rollout = play(env, {"seed": 0}, ScriptedAgent(["look", "look", right, right]))
    assert [len(episode.steps) for episode in rollout.episodes] == [3, 1]
    assert [episode.reward for episode in rollout.episodes] == pytest.approx([0.8, 1.0])
    assert env.reward_range == pytest.approx((-0.3, 1.0))


def test_wrong_looks_have_their_rate_and_are_the_same_in_every_rollout():
    env = make(noise=0.3, max_steps_per_episode=20, episodes_per_trial=2)
    hits = []
    for seed in range(40):
        rollout = play(env, {"seed": seed}, ScriptedAgent(["look"]))
        again = play(env, {"seed": seed}, ScriptedAgent(["look"]))
        assert [s.info["anchor"] for s in steps_of(rollout)] == [
            s.info["anchor"] for s in steps_of(again)
        ]
        hidden = env._initialize_episode("s", {"seed": seed})["hidden"][0]
        texts = [m["content"] for e in rollout.episodes for m in e.messages]
        seen = [box for text in texts for box in re.findall(r"coin in box (\d+)", text)]
        hits += [int(box) - 1 == hidden for box in seen]
    # 39 of a trial's 40 answers are in its conversation: the last ends it.
    assert len(hits) == 40 * 39
    assert sum(hits) / len(hits) == pytest.approx(0.7, abs=0.04)


def test_each_episode_asks_for_one_of_several_facts():
    env = make(facts=2, episodes_per_trial=2)
    prompts, facts = [], []
    for seed in range(20):
        rollout = play(env, {"seed": seed}, ScriptedAgent(["look red", "open 1"]))
        facts.append([env.question({"seed": seed}, k).fact for k in range(2)])
        prompts.append([rollout.episodes[0].messages[0], rollout.episodes[1].messages[0]])
    for (first, second), pair in zip(prompts, facts, strict=True):
        for prompt, fact in zip((first, second), pair, strict=True):
            assert f"Find the {('red', 'blue')[fact]} coin." in prompt["content"]
    assert {tuple(pair) for pair in facts} == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize(
    ("given", "trial"),
    [
        ({}, (2, 1)),
        ({"episodes_per_trial": 1}, (1, 0)),
        ({"free_shots": 3}, (4, 3)),
        ({"game": "switches"}, (4, 3)),
        ({"game": "switches", "episodes_per_trial": 2}, (2, 1)),
        ({"game": "switches", "free_shots": 0}, (4, 0)),
    ],
)
def test_episodes_and_free_shots_that_follow_from_the_rest(given, trial):
    env = make(**given)
    assert (env.config.episodes_per_trial, env.config.free_shots) == trial
    assert ExploreEnv(None, env.env_config).config == env.config


# -- the teacher -----------------------------------------------------------------------------------


def rollouts_of(env, agent, tasks=32):
    rollouts = env.run_trial(list(env.get_eval_dataset()["task_data"])[:tasks], agent).rollouts
    assert not any(rollout.failed for rollout in rollouts)
    return rollouts


def test_what_the_careless_teacher_earns_by_hand():
    env = ExploreEnv(None, {"eval_tasks": 1500})
    rollouts = rollouts_of(env, env.teacher_agent(seed=2), 1500)
    knows = 0.7 + 0.3 / 8
    after_a_claim = knows / 8 + (0.7 / 7 + 0.3 / 8) * 7 / 8
    expected = 0.85 * (0.15 * knows + 0.85 * after_a_claim)
    assert sum(r.final_reward for r in rollouts) / 1500 == pytest.approx(expected, abs=0.03)


def test_the_teachers_shares_are_settings():
    env = ExploreEnv(None, {"teacher_looks": 1.0})
    assert explored(env.plan, env.player()).informing == (1.0, 0.0)
    steps = [s for r in rollouts_of(env, env.teacher_agent()) for e in r.episodes for s in e.steps]
    assert all(step.info["informing"] for step in steps)
    env = ExploreEnv(None, {"teacher_looks": 0.0, "teacher_uses": 1.0})
    steps = [s for r in rollouts_of(env, env.teacher_agent()) for e in r.episodes for s in e.steps]
    assert not any(step.info["informing"] for step in steps)
