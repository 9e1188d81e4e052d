"""Training: GRPO on environments. Importing names from here imports torch."""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.training.config import GRPOEnvConfig
    from agentsgym.training.trainer import GRPOEnvTrainer

__all__ = ["GRPOEnvConfig", "GRPOEnvTrainer"]

__getattr__ = lazy_names(
    __name__,
    {
        "GRPOEnvConfig": "config",
        "GRPOEnvTrainer": "trainer",
    },
)
