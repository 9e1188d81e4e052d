"""What the tokens of a forward pass take, and what its branches gather."""

from types import SimpleNamespace

import numpy as np
import pytest

from agentsgym.training.loss.activations import Activations
from agentsgym.training.loss.forest import cuts

SHAPE = SimpleNamespace(
    num_hidden_layers=2, hidden_size=10, num_attention_heads=4, num_key_value_heads=2,
    head_dim=3, intermediate_size=20,
)  # fmt: skip


def test_bytes_of_a_token_and_of_a_gathered_key_by_hand():
    """A layer: 36 * 10 + 4 * 4 * 20 = 680 bytes of a token, 2 * 2 * 3 * 4 = 48 of a key."""
    used = Activations.of(SHAPE, 4, checkpointing=False)
    assert (used.token, used.key) == (1360, 96)
    kept = Activations.of(SHAPE, 4, checkpointing=True)
    assert (kept.token, kept.key) == (4 * 10 * 2 + 680, 48)
    assert kept.share == pytest.approx(48 / 760)


def test_what_branches_gather_counts_in_a_pass():
    """Three rows of ten tokens that share eight: 14 tokens, and 30 gathered."""
    lengths, shared = np.full(3, 10), np.array([0, 8, 8])
    assert cuts(lengths, shared, 17) == [slice(0, 3)]
    assert cuts(lengths, shared, 17, 0.1) == [slice(0, 3)]
    assert len(cuts(lengths, shared, 16, 0.1)) == 2
    # A row's beginnings have no branch, so they cost nothing.
    assert cuts(np.array([10, 6, 4]), np.array([0, 6, 4]), 5, 0.5) == [slice(0, 3)]
