"""A program that plays our game, with any client, gives what `run_trial` gives:
ids, masks, log-probabilities, rewards, and the first gradient of a training."""

import anthropic
import httpx
import numpy as np
import openai
import pytest
import torch

from agentsgym.envs.exploration.env import ExploreEnv
from agentsgym.envs.program.env import ProgramEnv
from agentsgym.rollout.stepping import SteppedTrial
from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer
from chat_tokenizers import template, tokenizer_for
from helpers import random_llama
from training.cells import QUICK

TOKENIZER = tokenizer_for(template("qwen2_5"), "<|im_end|>")
HTTP = httpx.Client(timeout=60)
OPENAI = openai.DefaultHttpxClient()  # one for all: making one takes 30 ms
ANTHROPIC = anthropic.DefaultHttpxClient()


def openai_client(client):
    return openai.OpenAI(base_url=client.base_url, api_key=client.api_key, http_client=OPENAI)


def anthropic_client(client):
    return anthropic.Anthropic(
        base_url=client.anthropic_url, api_key=client.api_key, http_client=ANTHROPIC
    )


def chat(client, messages):
    done = openai_client(client).chat.completions.create(model="gpt", messages=messages)
    return done.choices[0].message.content


def chat_stream(client, messages):
    chunks = openai_client(client).chat.completions.create(
        model="gpt", messages=messages, stream=True
    )
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def responses(client, messages):
    return openai_client(client).responses.create(model="gpt", input=messages).output_text


def responses_stream(client, messages):
    with openai_client(client).responses.stream(model="gpt", input=messages) as stream:
        *_, last = stream  # also of an answer that was cut, which is incomplete
    return last.response.output_text


def claude(client, messages):
    done = anthropic_client(client).messages.create(model="any", messages=messages, max_tokens=999)
    return "".join(block.text for block in done.content)


def claude_stream(client, messages):
    with anthropic_client(client).messages.stream(
        model="any", messages=messages, max_tokens=999
    ) as stream:
        return "".join(stream.text_stream)


def plain(client, messages):
    """Plain HTTP, with the key in the path."""
    body = {"model": "gpt", "messages": messages}
    done = HTTP.post(f"{client.session_url}/v1/chat/completions", json=body)
    return done.json()["choices"][0]["message"]["content"]


class Game(ExploreEnv):
    """A random model wins nothing: so each action also earns something for its length."""

    def _step_episode(self, session_id, state, action):
        state, reward, done, info = super()._step_episode(session_id, state, action)
        return state, reward + len(action) / 8, done, info


CLIENTS = {
    f.__name__: f
    for f in (chat, chat_stream, responses, responses_stream, claude, claude_stream, plain)
}
CONFIG = {
    "episodes_per_trial": 2,
    "free_shots": 1,
    "carry": "full",
    "max_steps_per_episode": 3,
    "error_allowance": 9,
}


def program(ask):
    """An environment whose program plays the game, an episode in each run."""

    class Program(ProgramEnv):
        def __init__(self, tokenizer=None, env_config=None):
            super().__init__(tokenizer, env_config)
            self.trials = {}
            self.game = Game(None, CONFIG)

        def run(self, task, client):
            if not client.trial.episode:
                self.trials[client.session_id] = SteppedTrial(self.game, task)
            trial, rewards = self.trials[client.session_id], []
            while not rewards or not trial.facts.episode_done:
                rewards.append(trial.act(ask(client, trial.messages)))
            return {"reward": rewards, "win": trial.facts.win}

    names = ("episodes_per_trial", "free_shots", "carry", "max_steps_per_episode")
    return Program(None, {name: CONFIG[name] for name in names})


def first_batch(env, tasks, folder):
    """The rollouts of a training's first generation, and the gradient of the loss on them."""
    from agentsgym.envs import task_dataset

    played = []
    trainer = GRPOEnvTrainer(
        random_llama(TOKENIZER),
        GRPOEnvConfig(
            **QUICK
            | {
                "output_dir": str(folder),
                "per_device_train_batch_size": 8,
                "num_generations": 4,
                "max_action_tokens": 6,
                "advantage_estimator": "trial",
            }
        ),
        task_dataset(env, tasks),
        None,
        TOKENIZER,
        rollout_sink=lambda rollouts, info: played.extend(rollouts),
        envs=[env],
    )
    trainer.model.train()
    inputs = trainer._prepare_inputs([])
    trainer.train_micro_batch(trainer.model, inputs["rollouts"])
    return played, [p.grad.clone() for p in trainer.model.parameters()]


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """The tasks, and what our own loop plays on them."""
    env = Game(None, CONFIG)
    tasks = env.get_train_dataset()[:2]["task_data"]
    return tasks, *first_batch(env, tasks, tmp_path_factory.mktemp("ours"))


@pytest.mark.parametrize("client", CLIENTS)
def test_any_client_gives_the_same_rollouts_and_the_same_gradient(ours, client, tmp_path):
    tasks, rollouts, gradient = ours
    theirs, same_gradient = first_batch(program(CLIENTS[client]), tasks, tmp_path)
    assert len(rollouts) == len(theirs) == 8
    for one, other in zip(rollouts, theirs, strict=True):
        assert other.error is None
        for row, same in zip(one.rows, other.rows, strict=True):
            assert np.array_equal(row.token_ids, same.token_ids)
            assert np.array_equal(row.agent_token_mask, same.agent_token_mask)
            assert np.allclose(row.logprobs, same.logprobs, atol=1e-5)
            assert (row.spans, row.begins) == (same.spans, same.begins)
        for episode, played in zip(one.episodes, other.episodes, strict=True):
            assert [s.reward for s in episode.steps] == pytest.approx(
                [s.reward for s in played.steps]
            )
            assert (episode.win, episode.score_weight) == (played.win, played.score_weight)
    assert any(rollout.final_reward for rollout in rollouts)
    assert sum(float(part.abs().sum()) for part in gradient) > 0
    for part, same in zip(gradient, same_gradient, strict=True):
        torch.testing.assert_close(part, same, atol=1e-6, rtol=1e-4)
