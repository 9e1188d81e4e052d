"""Training on answers that a grammar holds: sampler and trainer agree, and a run can be resumed."""

import httpx
import numpy as np
import pytest

from agentsgym import register, task_dataset
from agentsgym.envs.program.env import ProgramEnv
from agentsgym.training.loss import forest

pytest.importorskip("uvicorn", reason="needs the extra 'endpoint'")
pytest.importorskip("llguidance", reason="needs the extra 'grammar'")

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"enum": [1, 2, 12]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


class Former(ProgramEnv):
    """A program of two calls, the second of which goes on from the first; even days pay."""

    def run(self, task, client):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
        messages, total = [], 0.0
        for text in ("Where?", "And then?"):
            messages.append({"role": "user", "content": text})
            answer = httpx.post(
                f"{client.base_url}/chat/completions",
                json={"model": "m", "messages": messages, "response_format": form},
                headers={"Authorization": f"Bearer {client.api_key}"},
                timeout=60,
            )
            answer.raise_for_status()
            messages.append(answer.json()["choices"][0]["message"])
            total += '"days": 12' in messages[-1]["content"]
        return total


@pytest.fixture
def env(chat_tokenizer):
    register("Former", Former)
    return Former(chat_tokenizer)


@pytest.mark.parametrize("shares", [True, False])
def test_sampler_and_trainer_agree(make_trainer, env, monkeypatch, shares):
    monkeypatch.setattr(forest, "PAYS_FROM", 0.0 if shares else 1e9)
    tasks = task_dataset(env, [{"seed": n} for n in range(4)])
    trainer = make_trainer(env=env, dataset=tasks, max_action_tokens=80, entropy_coef=0.01)
    trainer.train()
    for rollout in trainer.played.rollouts():
        assert rollout.error is None and any(rollout.supports.wide())
        forced = len(rollout.supports.forced)
        assert rollout.agent_tokens == len(rollout.supports) - forced > 0
    gaps = [e["sampler/logp_difference"] for e in trainer.state.log_history if "loss" in e]
    assert gaps and np.max(gaps) < 1e-4
