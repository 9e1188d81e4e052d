"""Training in bfloat16: float32 weights, gradients and losses; passes and samples in bfloat16."""

import pytest
import torch

from agentsgym.generation.embedded.precision import ModelCopy


def entries(trainer):
    trainer.train()
    return [entry for entry in trainer.state.log_history if "sampler/ratio" in entry]


def dtypes(tensors):
    return {tensor.dtype for tensor in tensors if tensor.is_floating_point()}


def test_weights_gradients_and_optimizer_stay_float32(make_trainer):
    trainer = make_trainer(bf16=True, max_steps=2)
    log = entries(trainer)
    model = trainer.accelerator.unwrap_model(trainer.model)
    assert dtypes(model.parameters()) == {torch.float32}
    moments = [t for state in trainer.optimizer.state.values() for t in state.values()]
    assert dtypes(moments) == {torch.float32}
    assert len(log) == 2 and all(abs(entry["sampler/ratio"] - 1) < 0.05 for entry in log)
    assert all(0 < entry["sampler/logp_difference"] < 0.05 for entry in log)


def test_logprobs_are_float32_from_logits_in_bfloat16(make_trainer):
    """Those of the policy, and of the policy before the first update."""
    trainer = make_trainer(bf16=True, num_iterations=2, max_steps=2)
    seen = []
    forward = trainer.loss.scorer.forward

    def kept(model, layout, **options):
        scores = forward(model, layout, **options)
        with torch.no_grad():
            plain = _logprobs_in_bfloat16(trainer, layout.rows)
        torch.testing.assert_close(scores.logps.detach(), plain, atol=0.06, rtol=0)
        seen.append((scores.logps.dtype, scores.entropy.dtype))
        return scores

    trainer.loss.scorer.forward = kept
    log = entries(trainer)
    assert seen and set(seen) == {(torch.float32, torch.float32)}
    assert log[0]["ratio/token_ess"] == pytest.approx(1.0)


def _logprobs_in_bfloat16(trainer, rows):
    model = ModelCopy(trainer.accelerator.unwrap_model(trainer.model), torch.bfloat16).model
    parts = []
    for row in rows:
        ids = torch.tensor(row.token_ids, dtype=torch.int64)
        logits = model(ids[None]).logits[0]
        assert logits.dtype == torch.bfloat16
        logps = logits[:-1].float().log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        parts.append(logps[row.positions - 1])
    return torch.cat(parts)
