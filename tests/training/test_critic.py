"""The critic of "gae": its values and its fit against plain autograd, and what checkpoints hold."""

import numpy as np
import pytest
import torch

from agentsgym.credit import credit_steps, table_of
from agentsgym.envs import task_dataset
from helpers import CountdownEnv
from training.cells import trial_of


@pytest.fixture
def make(make_trainer, tiny_llama, chat_tokenizer):
    env = CountdownEnv(chat_tokenizer, {"episodes_per_trial": 2})
    tasks = task_dataset(env, [{"rewards": [1.0]}] * 4)

    def make(model=tiny_llama, **options):
        return make_trainer(
            env=env, dataset=tasks, model=model, advantage_estimator="gae", **options
        )

    return make


ROLLOUTS = [
    trial_of(0, (7, 8), (7, 9)),
    trial_of(1, (30,), (7, 9, 3)),
    trial_of(2, (9,), (9,), failed=True),
]


def inputs_by_hand(model, rollout):
    """(h / |h|, 1) at the token before each action, by a pass over the row alone."""
    (row,) = rollout.rows
    output = model(input_ids=torch.tensor([row.token_ids.tolist()]), output_hidden_states=True)
    hidden = [output.hidden_states[-1][0, span.start - 1] for span in row.spans]
    return [torch.cat([h / h.norm(), h.new_ones(1)]).detach() for h in hidden]


def test_values_and_fit_are_those_of_the_formula(make, tiny_llama):
    tiny_llama.double()
    critic, model = make().critic, tiny_llama
    x = torch.stack([x for one in ROLLOUTS[:2] for x in inputs_by_hand(model, one)])
    before = torch.zeros(x.shape[1], dtype=torch.float64)
    for returns in ([1.0, -2.0, 0.5, 3.0], [0.0, 1.0, 1.0, 2.0]):
        values = critic.values_of(ROLLOUTS, model)
        assert values[2] == {}
        now = [values[r].get((e, 0), 0.0) for r in range(2) for e in range(2)]
        assert now == pytest.approx((x @ before).tolist(), abs=1e-9)
        y = torch.tensor(returns, dtype=torch.float64)
        figures = critic.learn({(0, 0): {(0, 0): y[0], (1, 0): y[1]},
                                (0, 1): {(0, 0): y[2], (1, 0): y[3]}})  # fmt: skip
        errors = y - x @ before
        expected = 1 - float(errors.var() / y.var())
        assert figures["critic/explained_variance"] == pytest.approx(expected)
        w = torch.tensor(critic.weights, dtype=torch.float64, requires_grad=True)
        loss = ((x @ w - y) ** 2).mean() + 0.01 * ((w - before) ** 2).sum()
        (gradient,) = torch.autograd.grad(loss, w)
        assert gradient.abs().max() < 1e-9 and w.detach().abs().max() > 0.1
        before = w.detach()


def test_equal_returns_have_no_variance_to_explain(make, tiny_llama):
    critic = make().critic
    critic.values_of(ROLLOUTS[:1], tiny_llama)
    assert critic.learn({(0, 0): {(0, 0): 1.0, (1, 0): 1.0}}) == {}


def test_the_critic_learns_and_the_advantages_are_less_its_values(make):
    """Every task earns 1 per episode, so the values become the rewards to come, 1 and 0.5."""
    trainer = make(max_steps=6, learning_rate=0.0)
    learn, seen = trainer.critic.learn, []

    def spied(returns):
        seen.append(returns)
        return learn(returns)

    trainer.critic.learn = spied
    trainer.train()
    assert len(seen) == 6 and all(np.isfinite(trainer.critic.weights))
    (_, last) = trainer.played[-1]
    values = trainer.critic.values_of(last, trainer.model)
    table = table_of(last, values=values)
    expected = credit_steps(table_of(last), "gae").value
    assert np.abs(expected).max() > 0.1
    advantages = credit_steps(table, "gae").value
    np.testing.assert_allclose(advantages, expected - table.value)
    assert (advantages**2).mean() < (expected**2).mean() / 2


def test_a_resumed_run_equals_the_undisturbed_one(make, twice):
    whole, resumed = twice(2, make, max_steps=4)
    assert whole.critic.weights == resumed.critic.weights
