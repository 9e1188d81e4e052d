"""The one place that depends on private names of TRL and of transformers' Trainer.

`trainer.py` gives our own names to the members that we override and read; `head.py` computes the
log-probabilities of agent tokens with TRL's head or, for a TRL without one, with ours. All that
differs between TRL 1.9 and 1.16 is here. tests/training/test_trl_compat.py checks TRL's private
interface, and that no other module of this room uses a private name of its trainer.
"""

from agentsgym.training.trl_compat.head import ensure_head, fused_head_on_agent_tokens
from agentsgym.training.trl_compat.trainer import REFERENCE_ADAPTER, TRLTrainer

__all__ = [
    "REFERENCE_ADAPTER",
    "TRLTrainer",
    "ensure_head",
    "fused_head_on_agent_tokens",
]
