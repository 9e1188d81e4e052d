"""Inspect (`inspect-ai`): our rollouts as its logs (`write_logs`), our environments as its tasks
(`env_task`, and `inspect eval agentsgym/NAME`)."""

from typing import TYPE_CHECKING

from agentsgym.types.names import lazy_names

if TYPE_CHECKING:
    from agentsgym.integrations.inspect.log import write_logs
    from agentsgym.integrations.inspect.task import env_task

__all__ = ["env_task", "write_logs"]

__getattr__ = lazy_names(__name__, {"env_task": "task", "write_logs": "log"})
