"""What the section looks like to Axolotl, which merges this model into its own schema."""

from typing import Any

from pydantic import BaseModel


class AgentsgymArgs(BaseModel):
    """The section as it was written; the plugin checks its keys when it is registered."""

    agentsgym: dict[str, Any]
