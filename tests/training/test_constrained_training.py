"""The gradient of the constrained policy, against enumeration: what is played, recorded and scored
with constrained actions gives the gradient of the expected return."""

import copy
import itertools

import numpy as np
import pytest
import torch

from agentsgym import DirectOutputAgent, MultistepEnv, register, task_dataset
from agentsgym.training.loss.batch import make_rollouts
from agentsgym.types import SamplingParams
from training.test_gradient_truth import distance, window
from training.test_supports import norms_in_float64  # noqa: F401 - a fixture

FIRST, SECOND = ("go", "take 1", "take 10", "take 12"), ("go", "go on")
ALIKE = ("no", "up", "on"), ("no", "up")
"""Actions of as many tokens each: of others a model that knows nothing takes the shortest."""
BASELINE = 0.37


class Prefixes(MultistepEnv):
    """Two steps; actions that begin others, so that the end of the turn is a choice."""

    lists = FIRST, SECOND

    def _initialize_episode(self, session_id, task_data):
        return []

    def _format_prompt(self, state, step):
        return f"Say: {' '.join(state)}"

    def _step_episode(self, session_id, state, action):
        worth = {"take 1": 0.3, "take 10": 1.0, "take 12": -0.5, "go on": 0.6, "up": 0.8}
        said = [*state, action]
        return said, worth.get(action, 0.1) * len(said), len(said) == 2, {}

    def admissible_actions(self, state):
        return self.lists[bool(state)]


class Wholes(Prefixes):
    """The same with actions of one length."""

    lists = ALIKE


def whole_log_probability(model, tokenizer, row):
    """Of all answers of a row, each by the products of its tokens' probabilities, one sequence at a
    time."""
    ids, total = row.token_ids.tolist(), 0.0
    for span, actions in zip(row.spans, ALIKE, strict=True):
        totals = []
        for action in actions:
            path = [*tokenizer.encode(action, add_special_tokens=False), tokenizer.eos_token_id]
            logits = model(torch.tensor([ids[: span.start] + path])).logits[0]
            logps = torch.log_softmax(logits, -1)
            totals.append(sum(logps[span.start + k - 1, t] for k, t in enumerate(path)))
            taken = ids[span.start : span.stop] == path
            total = total + (totals[-1] if taken else 0.0)
        total = total - torch.logsumexp(torch.stack(totals), 0)
    return total


def log_probability(model, tokenizer, row):
    """Of all answers of a row, by the whole softmax: masked, and renormalized."""
    ends = (tokenizer.eos_token_id,)
    ids = row.token_ids.tolist()
    logits = model(torch.tensor([ids])).logits[0]
    total = 0.0
    for span, actions in zip(row.spans, (FIRST, SECOND), strict=True):
        paths = [(*tokenizer.encode(a, add_special_tokens=False), *ends) for a in actions]
        own = tuple(ids[span.start : span.stop])
        for k, token in enumerate(own):
            chances = torch.softmax(logits[span.start + k - 1], -1)
            options = sorted({p[k] for p in paths if p[:k] == own[:k]})
            total = total + torch.log(chances[token] / chances[options].sum())
    return total


@pytest.mark.parametrize("train_on", ["rollout", "steps"])
@pytest.mark.parametrize("actions", ["constrained", "whole"])
def test_the_gradient_is_that_of_the_expected_return(make_exact, chat_tokenizer, train_on, actions):
    made = Prefixes if actions == "constrained" else Wholes
    register(made.__name__, made)
    env = made(chat_tokenizer, {"actions": actions})
    tasks = task_dataset(env, [{"seed": n} for n in range(8)])
    trainer = make_exact(
        env=env,
        dataset=tasks,
        loss_type="luspo",
        max_action_tokens=32,
        train_on=train_on,
        sampler_correction="none",  # it has the sampler's log-probabilities, which are float32
    )
    agent = DirectOutputAgent(trainer.collector.engine, SamplingParams(32, temperature=1.0))
    batch = env.run_trial([{"seed": n} for n in range(400)], agent)
    assert not any(rollout.failed for rollout in batch.rollouts), batch.rollouts[0].error
    seen = {tuple(step.action for step in one.steps): one for one in batch.rollouts}
    assert set(seen) == set(itertools.product(*env.lists))
    model, rollouts = trainer.model, list(seen.values())
    scored = log_probability if actions == "constrained" else whole_log_probability
    logps = [scored(model, chat_tokenizer, one.rows[0]) for one in rollouts]
    assert float(sum(p.exp() for p in logps)) == pytest.approx(1.0, abs=1e-9)
    for one, logp in zip(rollouts, logps, strict=True):
        assert one.logprobs.sum() == pytest.approx(float(logp), abs=1e-4)
    expected = sum(
        p.exp() * one.final_reward for p, one in zip(logps, rollouts, strict=True)
    ) / len(rollouts)
    truth = torch.cat(
        [g.flatten() for g in torch.autograd.grad(expected, list(model.parameters()))]
    )
    advantages = [
        one.rows[0].agent_token_mask * float(p.exp().detach()) * (one.final_reward - BASELINE)
        for p, one in zip(logps, rollouts, strict=True)
    ]
    made = make_rollouts(rollouts, advantages, [True] * len(rollouts), train_on)
    index = torch.arange(len(made))
    trainer._generate_and_score_completions = lambda inputs: {
        "rollout_index": index,
        "rollouts": made,
    }
    _, gradient = window(trainer)
    assert distance(-gradient, truth) < 1e-9


def test_training_plays_and_learns_constrained(make_trainer, chat_tokenizer):
    """Two steps from playing to weights; what is logged has only what was a choice."""
    register("Prefixes", Prefixes)
    env = Prefixes(chat_tokenizer, {"actions": "constrained"})
    tasks = task_dataset(env, [{"seed": n} for n in range(8)])
    trainer = make_trainer(env=env, dataset=tasks, max_action_tokens=32, beta=0.0)
    trainer.train()
    for rollout in trainer.played.rollouts():
        (row,) = rollout.rows
        free = sum(row.supports.sizes > 1)
        assert rollout.agent_tokens == free < sum(span.length for span in row.spans)
        assert {step.action for step in rollout.steps} <= {*FIRST, *SECOND}
    logged = [line for line in trainer.state.log_history if "sampler/logp_difference" in line]
    assert logged and np.max([line["sampler/logp_difference"] for line in logged]) < 1e-4


@pytest.mark.parametrize("actions", ["constrained", "whole"])
def test_sampler_and_trainer_agree_in_bfloat16(make_trainer, chat_tokenizer, tiny_llama, actions):
    """The head over what was to choose from is in float32 in both. A whole action has three tokens,
    whose errors add up."""
    config = copy.deepcopy(tiny_llama.config)
    config.initializer_range = 0.2
    made = Prefixes if actions == "constrained" else Wholes
    register(made.__name__, made)
    env = made(chat_tokenizer, {"actions": actions})
    trainer = make_trainer(
        env=env,
        dataset=task_dataset(env, [{"seed": n} for n in range(8)]),
        model=type(tiny_llama)(config),
        bf16=True,
        max_steps=1,
        max_action_tokens=32,
    )
    trainer.train()
    assert trainer.collector.engine.model.dtype == torch.bfloat16
    (line,) = (e for e in trainer.state.log_history if "sampler/logp_difference" in e)
    assert 0 < line["sampler/logp_difference"] < (1e-2 if actions == "constrained" else 3e-2)


def test_a_resumed_run_makes_the_same_updates(twice, chat_tokenizer):
    """On groups that are replayed from the checkpoint, with their supports."""
    register("Wholes", Wholes)
    env = Wholes(chat_tokenizer, {"actions": "whole"})
    tasks = task_dataset(env, [{"seed": n} for n in range(8)])
    replay = {"zero_signal_groups": "replay", "per_device_train_batch_size": 16}
    twice(2, env=env, dataset=tasks, max_steps=4, max_action_tokens=32, **replay)
