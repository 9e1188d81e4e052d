"""verifiers 0.4 (its `verifiers.v1`): play its tasksets here, and show it our environments.

Names are loaded on first use; only then is verifiers imported.
"""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.integrations.verifiers.env import CannotKeep, VerifiersEnv
    from agentsgym.integrations.verifiers.export import (
        AgentsgymEnv,
        AgentsgymTaskset,
        InProcessHarness,
    )

__all__ = ["AgentsgymEnv", "AgentsgymTaskset", "CannotKeep", "InProcessHarness", "VerifiersEnv"]

__getattr__ = lazy_names(
    __name__,
    {
        "AgentsgymEnv": "export",
        "AgentsgymTaskset": "export",
        "CannotKeep": "env",
        "InProcessHarness": "export",
        "VerifiersEnv": "env",
    },
)
