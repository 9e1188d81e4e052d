"""A trial stepped from outside is the trial that `run_trial` plays."""

import dataclasses
import math
import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsgym import ScriptedAgent, make
from agentsgym.checks.playing import harvest
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.extras import MissingExtra
from agentsgym.rollout.processes.worker import stop_workers
from agentsgym.rollout.stepping import SteppedTrial, TrialOver
from agentsgym.types.reward_placement import per_token_rewards
from helpers import CHATML, DROPS_THOUGHT, CountdownEnv, build_tokenizer
from misbehaving_env import MisbehavingEnv

TOKENIZERS = [None, build_tokenizer(None), build_tokenizer(CHATML), build_tokenizer(DROPS_THOUGHT)]
TRIALS = [
    {},
    {"episodes_per_trial": 2, "free_shots": 1},
    {"episodes_per_trial": 2, "carry": "full", "free_shots": 1},
    {"episodes_per_trial": 3, "carry": "summary", "reflection_tokens": 8},
]


class Wanderer:
    """Picks at random from what the conversation offers; equal for equal seeds."""

    def __init__(self, seed):
        self.seed = seed

    def get_action(self, messages, agent_state):
        turn = agent_state or 0
        rng = random.Random(f"{self.seed} {turn}")
        offered = harvest([message["content"] for message in messages])
        thought = "<think>so</think>" if rng.random() < 0.2 else ""
        return thought + rng.choice([*offered, ""]), turn + 1


def step_through(trial, agent):
    """Play a trial from outside; returns the rewards told, episode by episode."""
    rewards, state = [], None
    while not trial.over:
        facts = trial.facts
        text, state = agent.get_action(trial.messages, state)
        reward = trial.act(text)
        if facts.asks_for == "action":
            rewards += [[] for _ in range(facts.episode + 1 - len(rewards))]
            rewards[facts.episode].append(reward)
    return rewards


def plain_rows(rollout):
    return [dataclasses.replace(row, session_id="", group=0, rollout=0) for row in rollout.rows]


def assert_equal_play(env, task, agent):
    trial = SteppedTrial(env, task)
    rewards = step_through(trial, agent)
    native = env.run_trial([task], agent).rollouts[0]
    stepped = trial.rollout
    assert stepped.error is None and native.error is None
    assert repr(stepped.episodes) == repr(native.episodes)  # by repr: NaN metrics are not equal
    assert plain_rows(stepped) == plain_rows(native)
    assert rewards == [[step.reward for step in e.actions] for e in native.episodes if e.actions]
    assert not env.active_states


@cache
def tasks_of(name):
    try:
        rows = make(name).get_eval_dataset()
    except MissingExtra as error:
        pytest.skip(str(error))
    return [rows[k]["task_data"] for k in range(min(4, len(rows)))]


OFFLINE = [name for name, env in BUILTIN.items() if env.extra not in ("alfworld", "textworld")]
SOME = [n for n in OFFLINE if not n.startswith("TextArena")] + ["TextArena/GuessTheNumber"]


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(SOME),
    task=st.integers(0, 3),
    trial=st.sampled_from(TRIALS),
    tokenizer=st.sampled_from(TOKENIZERS),
    seed=st.integers(0, 10**6),
)
def test_random_play_from_outside_equals_native_play(name, task, trial, tokenizer, seed):
    tasks = tasks_of(name)
    env = make(name, tokenizer, {**trial, "max_steps_per_episode": 4})
    assert_equal_play(env, tasks[task % len(tasks)], Wanderer(seed))


def test_an_environment_in_workers_plays_as_natively(chat_tokenizer):
    env = MisbehavingEnv(chat_tokenizer, {"episodes_per_trial": 2, "carry": "full", "workers": 1})
    try:
        assert_equal_play(env, {"length": 3}, ScriptedAgent(["a", "b"]))
    finally:
        stop_workers()


def test_the_conversation_and_the_facts_of_a_trial_step_by_step():
    config = {"episodes_per_trial": 2, "free_shots": 1, "bonus": 0.5, "system_prompt": "Play."}
    trial = SteppedTrial(CountdownEnv(None, config), {"rewards": [0.25, 1.0]}, session_id="mine")
    assert trial.session_id == "mine"
    assert [m["role"] for m in trial.new_messages] == ["system", "user"]
    facts = trial.facts
    assert (facts.episode, facts.episodes, facts.scored, facts.new_conversation) == (0, 2, False, 1)
    assert facts.asks_for == "action" and not facts.done and facts.stop_reason is None

    assert trial.act("bad") == 0.25
    assert trial.new_messages == [{"role": "user", "content": "The number is 1"}]
    assert trial.facts.malformed and not trial.facts.new_conversation
    assert trial.info == {"malformed": True, "win": True}

    assert trial.act("x") == 1.5
    facts = trial.facts
    assert facts.episode_done and facts.stop_reason == "done" and facts.win is True
    assert facts.episode == 1 and facts.scored and facts.new_conversation and not facts.done
    assert (
        trial.new_messages
        == trial.messages
        == [
            {"role": "system", "content": "Play."},
            {"role": "user", "content": "Is it an animal?"},
        ]
    )
    trial.messages.clear()  # a copy
    trial.act("x")
    assert not trial.facts.episode_done and trial.facts.win is None
    trial.act("x")
    assert trial.over and trial.facts.done and not trial.facts.failed
    assert trial.facts.asks_for is None and trial.new_messages == []
    assert trial.messages[-1] == {"role": "assistant", "content": "x"}
    assert trial.rollout.final_reward == 1.75
    with pytest.raises(TrialOver, match="mine is over"):
        trial.act("x")


def test_a_reflection_is_asked_for_and_earns_nothing():
    env = CountdownEnv(None, {"episodes_per_trial": 2, "carry": "summary"})
    trial = SteppedTrial(env, {"rewards": [1.0]})
    assert trial.act("x") == 1.0
    assert trial.facts.asks_for == "reflection" and trial.facts.episode_done
    assert not trial.facts.new_conversation
    assert trial.act("say x") == 0.0
    assert trial.facts.asks_for == "action" and not trial.facts.episode_done
    assert trial.facts.new_conversation and "say x" in trial.messages[0]["content"]


def test_a_cut_scores_the_steps_so_far(chat_tokenizer):
    env = CountdownEnv(chat_tokenizer, {"bonus": 0.5})
    trial = SteppedTrial(env, {"rewards": [0.25, 1.0]})
    reward = trial.act("x")
    rollout = trial.cut("client_left")
    assert rollout is trial.rollout is trial.cut("again")
    (episode,) = rollout.episodes
    assert (episode.stop_reason, episode.reward, rollout.final_reward) == (
        "client_left",
        0.75,
        0.75,
    )
    assert reward + trial.facts.reward == 0.75 and trial.facts.stop_reason == "client_left"
    assert episode.messages[-1]["role"] == "assistant" and not rollout.failed
    (row,) = rollout.rows
    assert row.agent_token_mask[-1] == 1 and not row.sampled
    assert per_token_rewards(rollout)[0].sum() == pytest.approx(0.75)


def test_a_cut_before_the_first_scored_action_and_in_a_reflection():
    env = CountdownEnv(None, {"episodes_per_trial": 2, "free_shots": 1, "carry": "summary"})
    early = SteppedTrial(env, {}).cut("enough")
    assert math.isnan(early.final_reward) and not early.failed and early.episodes[0].steps == ()
    trial = SteppedTrial(env, {"rewards": [1.0]})
    trial.act("x")
    (episode,) = trial.cut("enough").episodes
    assert episode.stop_reason == "done" and episode.reward == 1.0
    assert not env.active_states


def test_a_closed_trial_is_a_failed_rollout():
    env = CountdownEnv()
    with SteppedTrial(env, {}) as trial:
        trial.act("x")
        with pytest.raises(RuntimeError, match="no rollout yet"):
            _ = trial.rollout
    assert trial.rollout.failed and "closed before its end" in trial.rollout.error
    assert len(trial.rollout.episodes[0].steps) == 1
    trial.close()
    assert not env.active_states


@pytest.mark.parametrize("action", [None, "fail"])
def test_an_error_of_the_environment_ends_the_trial_and_is_recorded(action):
    trial = SteppedTrial(CountdownEnv(), {"broken": action is None})
    if action:
        assert trial.act(action) == 0.0
    assert trial.over and trial.facts.failed and trial.rollout.failed
    assert "RuntimeError" in trial.rollout.error


def test_bad_arguments_are_named():
    env = CountdownEnv()
    trial = SteppedTrial(env, {}, session_id="a")
    with pytest.raises(ValueError, match="session 'a' is open already"):
        SteppedTrial(env, {}, session_id="a")
    with pytest.raises(TypeError, match="must be a str, got int"):
        trial.act(3)
    with pytest.raises(ValueError, match="not of this"):
        row = {"env_class_path": "Bandit", "env_config": {}, "task_data": {}}
        SteppedTrial(env, row)

    class Own(CountdownEnv):
        def _run_complete_episode(self, session_id, agent):
            return {}

    with pytest.raises(ValueError, match="cannot be stepped"):
        SteppedTrial(Own(), {})
