"""`max_rollout_tokens`: no row gets longer, and what does not fit is not recorded."""

import itertools

import pytest

from agentsgym import DirectOutputAgent, EnvPool, SamplingParams, ScriptedAgent, register
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import run
from helpers import CHATML, DROPS_THOUGHT, CountdownEnv, build_tokenizer

OVER = "max_rollout_tokens"


@pytest.fixture(autouse=True)
def names():
    register("Countdown", CountdownEnv)


def rows(config=None, steps=3, number=1):
    task = {"rewards": [1.0] * steps}
    return [{"env_class_path": "Countdown", "env_config": config or {}, "task_data": task}] * number


def play(tokenizer, budget, config=None, agent=None, **options):
    agent = agent or ScriptedAgent(["Can it fly?"])
    pool = EnvPool(tokenizer)
    batch = run(
        rows(config), agent, envs=pool, max_rollout_tokens=budget, all_steps=True, **options
    )
    assert not any(rollout.failed for rollout in batch.rollouts), batch.rollouts[0].error
    return batch


def assert_bounded(batch, budget):
    for row in batch.rows:
        assert len(row.token_ids) <= budget
        assert row.spans, "a row without an action"
        assert row.spans[-1].stop == len(row.token_ids)
    for rollout, ids in zip(batch.rollouts, batch["full_token_ids"], strict=True):
        for episode in rollout.episodes:
            assert not episode.steps or episode.messages[-1]["role"] == "assistant"
        assert bool(ids) == bool(rollout.rows)
    assert len({len(batch[key]) for key in batch}) == 1


TOKENIZERS = [build_tokenizer(None), build_tokenizer(CHATML), build_tokenizer(DROPS_THOUGHT)]


@pytest.mark.parametrize("carry", ["none", "full", "summary"])
@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=["plain", "chatml", "drops"])
def test_text_agents_never_exceed_the_budget(tokenizer, carry):
    config = {"episodes_per_trial": 3, "carry": carry, "free_shots": 1}
    full = play(tokenizer, None, config)
    longest = max(len(row.token_ids) for row in full.rows)
    reasons = set()
    for budget in (1, 17, 31, 55, 90, longest - 1, longest):
        for line in ("Can it fly?", "<think>Yes. No.</think>No", ""):
            batch = play(tokenizer, budget, config, ScriptedAgent([line]))
            assert_bounded(batch, budget)
            (rollout,) = batch.rollouts
            assert len(rollout.episodes) == 3
            reasons |= {episode.stop_reason for episode in rollout.episodes}
    assert reasons == {"done", OVER}
    assert play(tokenizer, longest, config)["full_token_ids"] == full["full_token_ids"]


@pytest.mark.parametrize("carry", ["none", "full", "summary"])
def test_engine_agents_never_exceed_the_budget(tiny_llama, chat_tokenizer, carry):
    engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=8)
    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=3))
    config = {"episodes_per_trial": 2, "carry": carry, "reflection_tokens": 4}
    for budget in (25, 60):
        batch = play(chat_tokenizer, budget, config, agent, num_rollouts=2)
        assert_bounded(batch, budget)
    assert engine.poll() == [] and not engine._caches.sessions


def test_the_contracts_keys_show_the_last_row_with_an_action(plain_tokenizer):
    """The first episode fits, the second's first prompt does not."""

    class Growing(CountdownEnv):
        games = itertools.count()

        def _initialize_episode(self, session_id, task_data):
            return {**super()._initialize_episode(session_id, task_data), "game": next(self.games)}

        def _format_prompt(self, state, step):
            return "go " * 40 if state["game"] else "go"

    register("Growing", Growing)
    row = {**rows({"episodes_per_trial": 2})[0], "env_class_path": "Growing"}
    pool = EnvPool(plain_tokenizer)
    batch = run([row], ScriptedAgent(["No"]), envs=pool, max_rollout_tokens=30)
    first, second = batch.rollouts[0].episodes
    assert (first.stop_reason, second.stop_reason) == ("done", OVER)
    assert len(batch.rows) == 1 and any(batch["agent_token_mask"][0])
    assert batch["step_rewards"] == [[1.0, 1.0, 1.0]]
    assert batch["final_rewards"] == [1.5]


def test_a_trial_goes_on_without_a_reflection_that_does_not_fit(plain_tokenizer):
    config = {"episodes_per_trial": 2, "carry": "summary"}
    free = play(plain_tokenizer, None, config)
    needed = free.rows[0].spans[2].stop  # the first episode without its reflection
    batch = play(plain_tokenizer, needed, config)
    first, second = batch.rollouts[0].episodes
    assert [step.kind for step in first.steps] == ["action"] * 3
    assert first.stop_reason == second.stop_reason == "done"
    assert second.messages[0]["content"] == "Is it an animal?"  # no notes before it
    assert batch.rollouts[0].final_reward == 3.0
