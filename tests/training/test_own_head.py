"""Our own head, which a TRL before 1.16 needs, gives what the model's own logits give."""

import pytest
import torch

from agentsgym.training import trl_base
from agentsgym.training.trl_base import TRL_HAS_HEAD, add_own_head
from family_models import family_model
from helpers import CountdownEnv, task_dataset

IDS = torch.tensor([[5, 7, 8, 6, 9], [7, 9, 6, 1, 1]])
LABELS = torch.tensor([[-100, 7, 8, -100, 9], [-100, -100, 6, -100, -100]])


def scored(model, labels=LABELS):
    output = model(input_ids=IDS, labels=labels, fused_lm_head=True)
    model.zero_grad()
    (output.log_probs * torch.arange(4) + 0.3 * output.entropy).sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return output.log_probs, output.entropy, torch.cat([g.reshape(-1) for g in gradients])


def from_logits(model, labels=LABELS):
    """The same from all logits."""
    table = (model(input_ids=IDS).logits[:, :-1].float() / 0.5).log_softmax(-1)
    wanted = labels[:, 1:]
    mask = wanted != -100
    logps = table.gather(-1, wanted.clamp(min=0)[..., None])[..., 0] * mask
    entropy = -(table.exp() * table).sum(-1) * mask
    model.zero_grad()
    (logps * torch.arange(4) + 0.3 * entropy).sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return logps, entropy, torch.cat([g.reshape(-1) for g in gradients])


@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
def test_labels_are_scored_with_the_models_own_logits(model_type):
    """gemma2 caps its logits."""
    model = family_model(model_type).float().eval()
    expected = from_logits(model)
    projected = []
    model.get_output_embeddings().register_forward_hook(lambda *a: projected.append(a[2].shape[1]))
    add_own_head(model, 0.5)
    torch.testing.assert_close(scored(model), expected, atol=1e-5, rtol=1e-4)
    assert projected == [4]


def test_no_label_at_all_is_a_differentiable_zero(tiny_llama):
    add_own_head(tiny_llama, 1.0)
    assert not torch.cat([part.reshape(-1) for part in scored(tiny_llama, LABELS * 0 - 100)]).any()


def test_other_calls_stay_what_they_are(tiny_llama):
    before = tiny_llama(input_ids=IDS, labels=IDS)
    add_own_head(tiny_llama, 0.5)
    after = tiny_llama(input_ids=IDS, labels=IDS)
    assert torch.equal(before.loss, after.loss) and torch.equal(before.logits, after.logits)
    assert tiny_llama.generate(IDS[:1], max_new_tokens=2, do_sample=False).shape[1] > IDS.shape[1]


@pytest.mark.skipif(not TRL_HAS_HEAD, reason="there is no head of TRL to compare with")
def test_training_with_it_is_training_with_trls(
    make_trainer, tiny_llama, chat_tokenizer, monkeypatch, tmp_path
):
    """KL to a reference, an entropy bonus and a temperature; the weights after a step."""
    tiny_llama.save_pretrained(tmp_path / "model")
    weights = []
    for has in (True, False):
        monkeypatch.setattr(trl_base, "TRL_HAS_HEAD", has)
        env = CountdownEnv(chat_tokenizer)
        trainer = make_trainer(
            env,
            str(tmp_path / "model"),
            task_dataset(env, [{"rewards": [1.0] * turns} for turns in (1, 2, 3)] * 4),
            max_steps=1,
            optim="sgd",
            learning_rate=0.1,
            temperature=0.7,
            beta=0.1,
            entropy_coef=0.01,
            advantage_estimator="reward",
        )
        before = torch.cat([p.detach().reshape(-1) for p in trainer.model.parameters()])
        trainer.train()
        weights.append(torch.cat([p.detach().reshape(-1) for p in trainer.model.parameters()]))
    assert (weights[0] - before).abs().max() > 1e-3
    torch.testing.assert_close(*weights, atol=1e-7, rtol=1e-5)
