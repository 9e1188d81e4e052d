"""Actions that an environment lists, and a model that says nothing else."""

from types import SimpleNamespace

import numpy as np
import pytest

from agentsgym import DirectOutputAgent, EnvPool, MultistepEnv, RolloutBatch, register
from agentsgym.envs import ConfigError
from agentsgym.generation import EmbeddedEngine
from agentsgym.rollout import run
from agentsgym.runs.files.columns import StoredRollout
from agentsgym.runs.files.rollouts import read_file, write_rollouts
from agentsgym.types import SamplingParams
from helpers import random_llama

HELD = {"actions": "constrained", "max_steps_per_episode": 3}


class Listed(MultistepEnv):
    """Says which actions it lists; each is worth its length."""

    listed: tuple[str, ...] | None = ("look", "look around", "go", "take 1", "take 10")

    def _initialize_episode(self, session_id, task_data):
        return {"said": []}

    def _format_prompt(self, state, step):
        return f"Action {step}?"

    def _step_episode(self, session_id, state, action):
        assert action in self.listed
        state["said"].append(action)
        return state, float(len(action)), False, {}

    def admissible_actions(self, state):
        return self.listed


class Silent(MultistepEnv):
    """Lists no actions."""

    def _initialize_episode(self, session_id, task_data):
        return {}

    def _format_prompt(self, state, step):
        return "?"

    def _step_episode(self, session_id, state, action):
        return state, 0.0, True, {}


@pytest.fixture(scope="module", params=["chat", "plain"])
def tokenizer(request, chat_tokenizer, plain_tokenizer):
    return {"chat": chat_tokenizer, "plain": plain_tokenizer}[request.param]


@pytest.fixture(scope="module")
def engine(tokenizer):
    return EmbeddedEngine(random_llama(tokenizer), tokenizer, capacity=4)


def play(tokenizer, engine, listed=Listed.listed, number=6, most=32, **config):
    env = Listed(tokenizer, HELD | config)
    env.listed = listed
    return env.run_trial(
        [{"n": n} for n in range(number)], DirectOutputAgent(engine, SamplingParams(most))
    )


def test_every_action_is_admissible_and_what_it_was_chosen_from_is_recorded(
    tokenizer, engine, tmp_path
):
    batch = play(tokenizer, engine, number=40)
    said = [step.action for rollout in batch.rollouts for step in rollout.steps]
    assert len(said) == 120 and set(said) == set(Listed.listed)
    for rollout in batch.rollouts:
        assert rollout.supports.fits(rollout.token_ids)
        for row in rollout.rows:
            assert row.agent_tokens == sum(row.supports.sizes > 1)
            forced = row.supports.forced
            assert not row.agent_token_mask[forced].any() and not row.logprobs[forced].any()
    rewards = np.concatenate([np.array(own) for own in batch["per_token_rewards"]])
    assert rewards.sum() == pytest.approx(sum(map(len, said)))
    write_rollouts(tmp_path / "r", [StoredRollout(one, "train", 0) for one in batch.rollouts])
    stored = [one.rollout for one in read_file(tmp_path / "r")]
    assert [one.supports for one in stored] == [one.supports for one in batch.rollouts]
    assert RolloutBatch(stored)["agent_token_mask"] == batch["agent_token_mask"]


def test_a_whole_action_is_one_choice(tokenizer, engine, tmp_path):
    """Where all are of one length, a model that knows nothing takes them all."""
    batch = play(tokenizer, engine, ("go", "up", "on"), 40, actions="whole")
    said = [step.action for rollout in batch.rollouts for step in rollout.steps]
    assert len(said) == 120 and set(said) == {"go", "up", "on"}
    assert {rollout.agent_tokens for rollout in batch.rollouts} == {3}
    write_rollouts(tmp_path / "r", [StoredRollout(one, "train", 0) for one in batch.rollouts])
    stored = [one.rollout for one in read_file(tmp_path / "r")]
    assert [one.supports for one in stored] == [one.supports for one in batch.rollouts]


def test_one_action_is_no_choice_and_equal_ones_are_one(tokenizer, engine):
    batch = play(tokenizer, engine, ("look", "look"))
    assert not any(rollout.failed for rollout in batch.rollouts)
    assert sum(rollout.agent_tokens for rollout in batch.rollouts) == 0
    assert {step.action for rollout in batch.rollouts for step in rollout.steps} == {"look"}


@pytest.mark.parametrize(
    ("listed", "most", "words"),
    [
        ((), 32, "no action is admissible"),
        (None, 32, "no action is admissible"),
        (("look", 3), 32, "must return a list of str"),
        (("look", "x" * 99), 8, r"has \d+ tokens, and an action has at most 8"),
    ],
)
def test_a_list_that_cannot_be_followed_ends_the_session_with_a_sentence(
    tokenizer, engine, listed, most, words
):
    batch = play(tokenizer, engine, listed, 1, most)
    assert batch.rollouts[0].failed
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(batch.rollouts[0].error)


def test_control_tokens_in_an_action_are_its_text(tokenizer, engine):
    end = tokenizer.eos_token
    for action in (f"a{end}b", f"{end}"):
        batch = play(tokenizer, engine, (action, "go"), 4)
        assert not any(rollout.failed for rollout in batch.rollouts), batch.rollouts[0].error
        for rollout in batch.rollouts:
            assert {step.action for step in rollout.steps} <= {action, "go"}


@pytest.mark.parametrize("actions", ["constrained", "whole"])
def test_no_action_is_cut_by_the_budget_of_a_row(tokenizer, engine, actions):
    """An episode ends where some action would not fit."""
    register("Listed", Listed)
    row = {"env_class_path": "Listed", "env_config": HELD | {"actions": actions}, "task_data": {}}
    longest = max(map(len, (tokenizer(a)["input_ids"] for a in Listed.listed))) + 1
    agent, reasons = DirectOutputAgent(engine, SamplingParams(longest)), set()
    for budget in range(4, 100, 8):
        batch = run([row] * 2, agent, envs=EnvPool(tokenizer), max_rollout_tokens=budget)
        for rollout in batch.rollouts:
            assert not rollout.failed, rollout.error
            assert {step.action for step in rollout.steps} <= set(Listed.listed)
            assert not any(step.truncated for step in rollout.steps)
            assert all(len(own.token_ids) <= budget for own in rollout.rows)
            reasons.add((rollout.episodes[0].stop_reason, len(rollout.steps)))
    assert ("max_rollout_tokens", 0) in reasons
    assert {number for _, number in reasons} > {0, 1}


def test_an_environment_without_a_list_and_an_engine_without_supports_are_refused(tokenizer):
    with pytest.raises(ConfigError, match=r"Silent: env_config\.actions must be 'free'"):
        Silent(tokenizer, HELD)
    deaf = SimpleNamespace(tokenizer=tokenizer, capacity=1, submit=None, poll=None, release=list)
    agent = DirectOutputAgent(deaf, SamplingParams(8))
    for actions in ("constrained", "whole"):
        with pytest.raises(ConfigError, match=rf"{actions}.* SimpleNamespace does not"):
            Listed(tokenizer, HELD | {"actions": actions}).run_trial([{}], agent)


def test_reflections_are_free(tokenizer, engine):
    trials = {"episodes_per_trial": 2, "carry": "summary", "max_steps_per_episode": 1}
    (rollout,) = play(tokenizer, engine, number=1, **trials).rollouts
    kinds = [
        (step.kind, len(rollout.supports.between(*place[1:])))
        for step, place in zip(rollout.nodes, rollout.at.tolist(), strict=True)
    ]
    assert [kind for kind, _ in kinds] == ["action", "reflection", "action"]
    assert [bool(number) for _, number in kinds] == [True, False, True]
