"""OpenEnv: our environments served to its clients, and its servers played as our environments.

Playing a server (`OpenEnvEnv`) needs the extra `http` only; serving (`serve`, `make_app`) needs the
extra `openenv`.
"""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.integrations.openenv.env import OpenEnvEnv
    from agentsgym.integrations.openenv.server import make_app, serve

__all__ = ["OpenEnvEnv", "make_app", "serve"]

__getattr__ = lazy_names(
    __name__,
    {
        "OpenEnvEnv": "env",
        "make_app": "server",
        "serve": "server",
    },
)
