"""Train in our environments with Axolotl: `plugins: [agentsgym.integrations.axolotl.Plugin]`.

docs/integrations/trl.md has the section `agentsgym:` of its YAML. Axolotl only logs a plugin's
ImportError and trains without the plugin, so what cannot be imported here raises a RuntimeError,
which ends the command.
"""

import importlib
from typing import Any

_MODULES = {
    "AxolotlEnvConfig": "trainer",
    "AxolotlEnvTrainer": "trainer",
    "Plugin": "plugin",
}

__all__ = ["AxolotlEnvConfig", "AxolotlEnvTrainer", "Plugin"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    except ImportError as error:
        raise RuntimeError(
            f"agentsgym cannot be used by this Axolotl: {error}. It needs Axolotl 0.19 and the "
            "packages of agentsgym in the same environment: pip install 'agentsgym[train]'"
        ) from error
    return getattr(module, name)
