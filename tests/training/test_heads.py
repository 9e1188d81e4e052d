"""The head of the loss: TRL's, and ours, which a TRL before 1.16 needs,
gives what the model's own logits give, and training with one is training with the other."""

import pytest
import torch
from peft import PromptTuningConfig, get_peft_model
from trl.trainer import utils as trl_utils

from agentsgym.training import trl_base
from agentsgym.training.loss.batch import hidden_states_at
from agentsgym.training.trl_base import TRL_HAS_HEAD, add_own_head, fused_head_tiles
from family_models import family_model
from helpers import CountdownEnv, task_dataset

CPU = torch.device("cpu")
IDS = torch.tensor([[5, 7, 8, 6, 9], [7, 9, 6, 1, 1]])
BEFORE = torch.tensor([0, 1, 3, 6])  # the tokens before the labels, counted over both rows
LABELS = torch.tensor([7, 8, 9, 6])

needs_trls = pytest.mark.skipif(not TRL_HAS_HEAD, reason="TRL before 1.16 has no head for the CPU")


def gradient_of(model, logps, entropy):
    model.zero_grad()
    (logps * torch.arange(len(logps)) + 0.3 * entropy).sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return logps, entropy, torch.cat([g.reshape(-1) for g in gradients])


def scored(model, number=4):
    with hidden_states_at(model, BEFORE[:number], IDS.numel()):
        output = model(input_ids=IDS, shift_labels=LABELS[None, :number], fused_lm_head=True)
    return gradient_of(model, output.log_probs[0], output.entropy[0])


def from_logits(model):
    """The same from all logits."""
    table = (model(input_ids=IDS).logits.flatten(0, 1)[BEFORE].float() / 0.5).log_softmax(-1)
    logps = table.gather(-1, LABELS[:, None])[:, 0]
    return gradient_of(model, logps, -(table.exp() * table).sum(-1))


@pytest.fixture
def fused_model(tiny_llama):
    trl_utils.add_fused_lm_head(tiny_llama, outputs=("log_probs", "entropy"))
    return tiny_llama


@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
def test_our_head_scores_labels_with_the_models_own_logits(model_type):
    """gemma2 caps its logits."""
    model = family_model(model_type).float().eval()
    expected = from_logits(model)
    projected = []
    model.get_output_embeddings().register_forward_hook(lambda *a: projected.append(a[2].shape[1]))
    add_own_head(model, 0.5)
    torch.testing.assert_close(scored(model), expected, atol=1e-5, rtol=1e-4)
    assert projected == [4]


def test_no_label_at_all_is_a_differentiable_zero_of_our_head(tiny_llama):
    add_own_head(tiny_llama, 1.0)
    assert not any(part.any() for part in scored(tiny_llama, 0))


def test_virtual_tokens_of_prompt_tuning_are_no_tokens_of_the_pass(tiny_llama):
    model = get_peft_model(
        tiny_llama, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    )
    with hidden_states_at(model, BEFORE, IDS.numel()):
        logits = model(input_ids=IDS).logits[0]
    expected = model(input_ids=IDS).logits[:, 3:].flatten(0, 1)[BEFORE]
    torch.testing.assert_close(logits, expected)


def test_other_calls_stay_what_they_are(tiny_llama):
    before = tiny_llama(input_ids=IDS, labels=IDS)
    add_own_head(tiny_llama, 0.5)
    after = tiny_llama(input_ids=IDS, labels=IDS)
    assert torch.equal(before.loss, after.loss) and torch.equal(before.logits, after.logits)
    assert tiny_llama.generate(IDS[:1], max_new_tokens=2, do_sample=False).shape[1] > IDS.shape[1]


@needs_trls
def test_training_with_ours_is_training_with_trls(
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


# -- TRL's head on the CPU -------------------------------------------------------------------------


@needs_trls
@pytest.mark.parametrize("vocabulary", [385, 100_000])
def test_the_same_values_from_narrower_tiles(fused_model, vocabulary):
    """The bits are those of TRL's tile of 32,768 columns."""
    wide = scored(fused_model)
    with fused_head_tiles(CPU, vocabulary):
        assert min(vocabulary, 8192) == trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE
        narrow = scored(fused_model)
    assert all(map(torch.equal, narrow, wide))


@needs_trls
def test_trl_is_left_as_it_was():
    before = trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE
    with pytest.raises(KeyError), fused_head_tiles(CPU, 385):
        raise KeyError
    with fused_head_tiles(torch.device("cuda"), 385):
        assert before == trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE
    assert before == trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE
