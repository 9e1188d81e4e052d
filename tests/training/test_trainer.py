"""Real TRL training steps on a tiny Llama."""

import copy

import numpy as np
import pytest
import torch

from agentsgym.envs import task_dataset
from agentsgym.training.loss import objective
from helpers import CountdownEnv, DigitEnv


def test_no_gradient_flows_through_tokens_of_others(make_trainer):
    trainer = make_trainer()
    trainer.model.train()
    inputs = trainer._prepare_inputs([])
    seen = []

    def keep(module, args, output):
        output.last_hidden_state.retain_grad()
        seen.append(output.last_hidden_state)

    (layout,) = trainer.loss.layouts(trainer.model, inputs["rollouts"])
    hook = trainer.model.model.register_forward_hook(keep)
    trainer.train_micro_batch(trainer.model, inputs["rollouts"])
    hook.remove()
    (hidden,) = seen
    trains = np.zeros(hidden.shape[1], bool)
    for i, row in enumerate(layout.rows):
        own = row.positions[row.advantages[row.positions] != 0]
        trains[layout.index(np.full(len(own), i), own - 1)] = True
    assert layout.size == len(trains) < sum(row.length for row in layout.rows)
    assert ((hidden.grad[0].abs().sum(-1) > 0).numpy() == trains).all() and trains.sum() > 8


def test_a_failed_rollout_changes_nothing_for_the_others(make_trainer):
    """Its tokens carry no loss and it enters neither a mean nor a denominator."""

    class Fragile(DigitEnv):
        def _step_episode(self, session_id, state, action):
            if session_id.split("-")[1] == "003":
                raise RuntimeError("boom")
            return super()._step_episode(session_id, state, action)

    from agentsgym import register

    register("Fragile", Fragile)
    trainer = make_trainer(Fragile(None), scale_rewards="none")
    trainer.model.train()
    rollouts = trainer._prepare_inputs([])["rollouts"]
    failed = [r for r in rollouts if r.played.index == 3]
    others = [r for r in rollouts if r.played.index != 3]
    assert len(failed) == 2 and not any(r.in_loss for r in failed)
    assert all(set(row.weights.values()) == {0.0} for r in failed for row in r.rows)
    tokens = sum(r.agent_tokens for r in others)
    assert {row.weights["policy"] for r in others for row in r.rows} == {1 / tokens}
    for group in (0, 1):
        members = [r for r in others if r.played.group == group]
        mean = sum(r.played.final_reward for r in members) / 3
        for r in members:
            expected = r.played.final_reward - mean
            values = [a for row in r.rows for a in row.advantages[row.positions]]
            assert values == pytest.approx([expected] * len(values))


def test_resume_equals_no_interruption(twice):
    """Also across epochs: 32 tasks in generations of 8 are 4 optimizer steps an epoch."""
    twice(6, max_steps=8, per_device_train_batch_size=32)


def equal_rewards(chat_tokenizer):
    """Tasks 0 to 3 always earn the same; the others are won by a digit."""

    class Half(DigitEnv):
        def _step_episode(self, session_id, state, action):
            state, reward, done, info = super()._step_episode(session_id, state, action)
            return state, reward if state["seed"] > 3 else 0.0, done, info

    from agentsgym import register

    register("Half", Half)
    return Half(chat_tokenizer)


@pytest.mark.parametrize("mode", ["keep", "drop", "resample"])
def test_groups_without_signal(make_trainer, chat_tokenizer, mode):
    env = equal_rewards(chat_tokenizer)
    trainer = make_trainer(
        env,
        dataset=env.get_train_dataset().select([0, 9, *range(1, 9)]),
        zero_signal_groups=mode,
        shuffle_dataset=False,
        **({"max_resample_rounds": 5} if mode == "resample" else {}),
    )
    trainer.model.train()
    trainer.low_signal.update(1.0)
    rollouts = trainer._prepare_inputs([])["rollouts"]
    share = trainer._metrics["train"]["groups_without_signal"]
    live = {r.played.group: r.in_loss for r in rollouts}
    if mode == "resample":
        assert share == [0.0] and live == {0: True, 1: True}
        replaced = {r.played.task_data["seed"] for r in rollouts if r.played.group == 0}
        assert len(replaced) == 1 and replaced.pop() > 3
    else:
        assert share == [0.5]
        assert live == {0: mode == "keep", 1: True}


class OrdersEnv(CountdownEnv):
    """Rollouts of tasks that are `same` earn the same in different orders, the others 0 to 3."""

    def _initialize_episode(self, session_id, task_data):
        rewards, number = task_data["rewards"], int(session_id.split("-")[1])
        given = rewards[number:] + rewards[:number] if task_data["same"] else [float(number)]
        return {"rewards": given, "played": []}


@pytest.mark.parametrize(
    ("mode", "estimator", "rewards"),
    [
        ("keep", "grpo", [0.1, 0.2, 0.3, 0.7]),
        ("replay", "rloo", [333333.3, 123456.7, 700000.1, 0.1]),
    ],
)
def test_the_same_rewards_in_another_order_are_no_signal(
    make_trainer, chat_tokenizer, mode, estimator, rewards
):
    from agentsgym import register
    from agentsgym.runs.evaluate import probe

    register("Orders", OrdersEnv)
    env = OrdersEnv(chat_tokenizer)
    tasks = [{"same": True, "rewards": rewards}, {"same": False, "rewards": []}] * 2
    trainer = make_trainer(
        env, dataset=task_dataset(env, tasks), shuffle_dataset=False,
        advantage_estimator=estimator, zero_signal_groups=mode,
    )  # fmt: skip
    trainer.model.train()
    rollouts = trainer._prepare_inputs([])["rollouts"]
    assert len({r.final_reward for r in trainer.played.rollouts()[:4]}) > 1
    assert trainer._metrics["train"]["groups_without_signal"] == [0.5]
    assert sum(r.in_loss for r in rollouts) == (8 if mode == "keep" else 4)
    figures, _ = probe(trainer, trainer.train_dataset, 4, 0)
    assert figures["groups_without_signal"] == 0.5


def test_training_stops_when_there_is_nothing_to_learn(make_trainer, chat_tokenizer):
    env = CountdownEnv(chat_tokenizer)
    data = task_dataset(env, [{"rewards": [1.0]}] * 8)
    trainer = make_trainer(env, dataset=data, max_steps=50, min_signal_patience=3)
    trainer.train()
    assert trainer.state.global_step == 3
    assert "nothing left to learn" in trainer.low_signal.reason


def test_a_resumed_training_without_signal_stops_where_an_undisturbed_one_does(
    make_trainer, chat_tokenizer, tmp_path
):
    env = CountdownEnv(chat_tokenizer)
    data = task_dataset(env, [{"rewards": [1.0]}] * 8)
    options = {"max_steps": 50, "min_signal_patience": 3, "save_strategy": "steps"}
    trainer = make_trainer(env, dataset=data, save_steps=2, **options)
    trainer.train()
    resumed = make_trainer(env, dataset=data, save_steps=2, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    assert trainer.state.global_step == resumed.state.global_step == 3
    assert resumed.low_signal.reason == trainer.low_signal.reason


def test_evaluation_plays_every_task_and_computes_no_loss(make_trainer, chat_tokenizer):
    env = DigitEnv(chat_tokenizer)
    trainer = make_trainer(
        env, eval_dataset=env.get_eval_dataset(), eval_rollouts=3, eval_temperature=0.0
    )
    trainer.train_micro_batch = None
    metrics = trainer.evaluate()
    assert len(trainer.played.rollouts("eval")) == 24 and len(trainer.played) == 1
    assert set(metrics) >= {"eval_win_rate", "eval_reward", "eval_steps"}
    assert metrics["eval_reward"] == metrics["eval_win_rate"]


@pytest.mark.parametrize(("exact", "passes"), [(objective._EXACT, 4), (-1.0, 5)])
def test_old_log_probabilities_need_a_pass_only_where_the_samplers_are_not_exact(
    make_trainer, tiny_llama, monkeypatch, exact, passes
):
    """Two micro-batches of different rollouts, each used in two updates: the first one's are kept
    from its own pass."""
    monkeypatch.setattr(objective, "_EXACT", exact)
    before = copy.deepcopy(tiny_llama)
    settings = {"per_device_train_batch_size": 4, "steps_per_generation": 2, "num_iterations": 2}
    trainer = make_trainer(model=before, **settings, max_steps=4, max_tokens_per_forward=10_000)
    trainer.loss.layouts(trainer.model, [])
    seen = []
    forward = trainer.loss.scorer.forward

    def counted(model, layout, **options):
        scores = forward(model, layout, **options)
        seen.append(scores.chunk)
        return scores

    trainer.loss.scorer.forward = counted
    trainer.train()
    assert len(seen) == passes
    later = [chunk for chunk in seen if "old" in chunk.logps]
    assert len(later) == 3  # the second update, and both again
    for chunk in later:
        old = torch.cat([torch.tensor(row.logprobs[row.positions]) for row in chunk.rows])
        torch.testing.assert_close(chunk.logps["old"], old, atol=1e-5, rtol=0)


def with_rollouts_changed(trainer, change):
    """The trainer calls `change` with the micro-batches of each generation."""
    weigh = trainer.weigh_rollouts

    def changed(micro_batches):
        change(micro_batches)
        weigh(micro_batches)

    trainer.weigh_rollouts = changed
    return trainer


def test_rows_that_no_engine_sampled_get_old_log_probabilities_of_a_pass(make_trainer):
    """The first update trains on sampled rows, the second one on others."""

    def change(micro_batches):
        for row in (row for rollout in micro_batches[1] for row in rollout.rows):
            row.sampled, row.logprobs = False, np.zeros_like(row.logprobs)

    settings = {"steps_per_generation": 2, "learning_rate": 1e-6}
    trainer = make_trainer(per_device_train_batch_size=4, **settings)
    with_rollouts_changed(trainer, change).train()
    for logged in trainer.state.log_history[:2]:
        assert logged["ratio/token_ess"] > 0.999


def test_the_ratio_of_a_rollout_is_computed_beside_one_that_is_not_in_the_loss(make_trainer):
    def change(micro_batches):
        micro_batches[0][0].in_loss = False

    trainer = make_trainer(ratio_scope="rollout", num_iterations=2)
    with_rollouts_changed(trainer, change).train()
    first, second = trainer.state.log_history[:2]
    assert first["ratio/rollout_ess"] == 1 > second["ratio/rollout_ess"]
