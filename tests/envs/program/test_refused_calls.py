"""Calls that the model's chat template can't show: the program is told, and its rollout goes on."""

import httpx
import pytest

from agentsgym import DirectOutputAgent, SamplingParams
from chat_tokenizers import template, tokenizer_for
from envs.program.programs import program
from rollout.doubles import TextEngine

GEMMA = tokenizer_for(template("gemma3"))
SYSTEM = {"role": "system", "content": "Be brief."}
HELLO = {"role": "user", "content": "Hello."}
ANSWER = {"role": "assistant", "content": "a"}
REFUSED = [SYSTEM, {"role": "assistant", "content": "I begin."}, HELLO]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def ask(client, messages, **more):
    body = {"model": "any", "messages": messages, **more}
    return httpx.post(f"{client.session_url}/v1/chat/completions", json=body, timeout=60)


def played(function, **config):
    env = program(function, GEMMA, time_limit=60.0, **config)
    agent = DirectOutputAgent(TextEngine(GEMMA), SamplingParams())
    (rollout,) = env.run_trial([{}], agent).rollouts
    return rollout


@pytest.mark.parametrize("workers", [0, 1])
def test_a_refused_call_is_no_step_and_leaves_no_trace(workers):
    def play(task, client):
        statuses = [ask(client, REFUSED).status_code, ask(client, [HELLO]).status_code]
        statuses += [ask(client, [HELLO], tools=[TOOL]).status_code]
        statuses += [ask(client, REFUSED).status_code]
        httpx.post(f"{client.session_url}/reward", json={"reward": 0.5})
        statuses += [ask(client, [HELLO, ANSWER, HELLO, SYSTEM]).status_code]
        return {"reward": 1.0, "metrics": {"ok": statuses == [400, 200, 400, 400, 200]}}

    rollout = played(play, workers=workers)
    assert rollout.error is None
    (episode,) = rollout.episodes
    assert [step.reward for step in episode.steps] == [0.5, 1.0]
    assert episode.steps[-1].info["metrics"]["ok"]
    (row,) = rollout.rows
    assert row.begins == "episode" and len(row.spans) == 2


@pytest.mark.parametrize(
    ("result", "rewards"),
    [(2.0, [1.0, 2.5]), ([3.0, 4.0], [4.0, 4.5]), ({"reward": 0, "win": True}, [1.0, 0.5])],
)
def test_a_program_may_end_after_a_refused_call(result, rewards):
    def play(task, client):
        for reward in (1.0, 0.5):
            assert ask(client, [HELLO]).status_code == 200
            httpx.post(f"{client.session_url}/reward", json={"reward": reward})
        assert ask(client, REFUSED).status_code == 400
        return result

    rollout = played(play)
    assert rollout.error is None
    (episode,) = rollout.episodes
    assert [step.reward for step in episode.steps] == rewards
    assert episode.stop_reason == "done" and episode.steps[-1].done
    assert episode.win is (True if isinstance(result, dict) else None)


def test_a_program_whose_only_call_was_refused_fails_with_that_sentence():
    rollout = played(lambda task, client: float(ask(client, REFUSED).status_code))
    assert "message 2 of the conversation (assistant)" in rollout.error
