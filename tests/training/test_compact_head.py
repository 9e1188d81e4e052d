"""TRL's fused head scores labelled positions only, and gives what it gives for all of them."""

import pytest
import torch
from trl.trainer import utils as trl_utils

from agentsgym.training.tiny import build_model
from agentsgym.training.trl_base import TRL_HAS_HEAD, fused_head_on_agent_tokens
from agentsgym.training.warm_start_settings import TinySettings
from helpers import CHATML, build_tokenizer

pytestmark = pytest.mark.skipif(
    not TRL_HAS_HEAD, reason="TRL before 1.16 has no head for the CPU; see test_own_head.py"
)

CPU = torch.device("cpu")


@pytest.fixture
def fused_model():
    model = build_model(build_tokenizer(CHATML), TinySettings(hidden_size=32, heads=2))
    trl_utils.add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model


def _scored(model, labels, monkeypatch):
    """Output of a forward pass, gradients, and how many positions the head projected."""
    numbers = []
    function = trl_utils._ChunkedLogProbFunction

    class Counted:
        @staticmethod
        def apply(hidden, *rest):
            numbers.append(len(hidden))
            return function.apply(hidden, *rest)

    monkeypatch.setattr(trl_utils, "_ChunkedLogProbFunction", Counted)
    ids = labels.clamp(min=5)
    output = model(input_ids=ids, labels=labels, fused_lm_head=True)
    monkeypatch.setattr(trl_utils, "_ChunkedLogProbFunction", function)
    model.zero_grad()
    (output.log_probs * torch.arange(labels.shape[1] - 1)).sum().backward()
    return output, [p.grad.clone() for p in model.parameters()], numbers


def test_same_values_from_fewer_positions(fused_model, monkeypatch):
    labels = torch.tensor([[-100, 7, 8, -100, 9], [-100, -100, 6, -100, -100]])
    whole, gradients, all_positions = _scored(fused_model, labels, monkeypatch)
    with fused_head_on_agent_tokens(CPU, 385):
        few, same, labelled = _scored(fused_model, labels, monkeypatch)
    assert (all_positions, labelled) == ([8], [4])
    torch.testing.assert_close(few.log_probs, whole.log_probs)
    torch.testing.assert_close(few.entropy, whole.entropy)
    torch.testing.assert_close(same, gradients)


def test_no_label_at_all_is_a_differentiable_zero(fused_model, monkeypatch):
    with fused_head_on_agent_tokens(CPU, 385):
        output, gradients, _ = _scored(fused_model, torch.full((1, 4), -100), monkeypatch)
    assert not output.log_probs.any()
    assert all(not gradient.any() for gradient in gradients)


def test_trl_is_left_as_it_was():
    before = trl_utils._use_triton, trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE
    with pytest.raises(KeyError), fused_head_on_agent_tokens(CPU, 385):
        raise KeyError
    with fused_head_on_agent_tokens(torch.device("cuda"), 385):
        assert before == (trl_utils._use_triton, trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE)
    assert before == (trl_utils._use_triton, trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE)


@pytest.mark.parametrize("vocabulary", [385, 100_000])
def test_a_tile_is_no_wider_than_the_vocabulary(vocabulary, fused_model, monkeypatch):
    """TRL's tile of 32,768 columns gives the same bits as one of a small vocabulary's width."""
    labels = torch.tensor([[-100, 7, 8, -100, 9]])
    monkeypatch.setattr(trl_utils, "_use_triton", lambda device: True)
    wide, gradients, _ = _scored(fused_model, labels, monkeypatch)
    with fused_head_on_agent_tokens(CPU, vocabulary):
        assert min(vocabulary, 8192) == trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE
        narrow, same, _ = _scored(fused_model, labels, monkeypatch)
    assert torch.equal(narrow.log_probs, wide.log_probs)
    assert torch.equal(narrow.entropy, wide.entropy)
    assert all(map(torch.equal, same, gradients))
