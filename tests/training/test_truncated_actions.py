"""`train_truncated_actions=False`: what the token cap cut off is context and nothing else."""

import pytest
import torch


@pytest.fixture
def folder(tmp_path, tiny_llama, chat_tokenizer):
    """The directory of a model, from which the policy `tiny_llama` then differs."""
    tiny_llama.save_pretrained(tmp_path / "model")
    chat_tokenizer.save_pretrained(tmp_path / "model")
    tiny_llama.config._name_or_path = str(tmp_path / "model")
    with torch.no_grad():
        tiny_llama.lm_head.weight.mul_(2.0)
    return str(tmp_path / "model")


TERMS = {
    "policy": {},
    "entropy": {"entropy_coef": 0.1},
    "KL": {"beta": 0.5},
    "teacher": {"teacher_model": None},
}


@pytest.mark.parametrize("term", TERMS)
def test_where_everything_was_cut_nothing_is_learned(make_trainer, folder, term):
    options = {name: folder if value is None else value for name, value in TERMS[term].items()}
    trainer = make_trainer(max_action_tokens=1, train_truncated_actions=False, **options)
    trainer.train()
    steps = [s for r in trainer.played.rollouts() for e in r.episodes for s in e.steps]
    assert steps and all(step.truncated for step in steps)
    norms = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    assert norms == [0.0, 0.0]


@pytest.mark.parametrize(
    ("loss", "train_on"), [("grpo", "rollout"), ("dapo", "steps"), ("dr_grpo", "rollout")]
)
def test_what_was_cut_is_in_no_denominator(make_trainer, loss, train_on):
    options = {"loss_norm_tokens": 100} if loss == "dr_grpo" else {}
    trainer = make_trainer(
        max_action_tokens=100, train_truncated_actions=False, train_on=train_on,
        loss_type=loss, entropy_coef=0.1, per_device_train_batch_size=32, **options,
    )  # fmt: skip
    trainer.model.train()
    rollouts = trainer._prepare_inputs([])["rollouts"]
    (played,) = trainer.played.steps().values()
    left = {
        r.session_id: sum(
            span.length
            for row in r.rows
            for span in row.spans
            if not r.episodes[span.episode].steps[span.step].truncated
        )
        for r in played
    }
    live = [tokens for tokens in left.values() if tokens]
    assert 0 < len(live) < 32
    expected = {
        "grpo": lambda own: 1 / (len(live) * own),
        "dapo": lambda own: 1 / sum(live),
        "dr_grpo": lambda own: 1 / (len(live) * 100),
    }[loss]
    for rollout in rollouts:
        own = left[rollout.played.session_id]
        assert rollout.agent_tokens == own and rollout.in_loss == (own > 0)
        for row in rollout.rows:
            if row.agent_tokens:
                assert row.weights["policy"] == pytest.approx(expected(own))
                assert row.weights["entropy"] == pytest.approx(1 / sum(live))
