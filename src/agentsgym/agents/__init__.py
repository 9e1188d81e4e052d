"""Agents: model-backed, scripted, human."""

from agentsgym.agents.direct import DirectOutputAgent
from agentsgym.agents.human import HumanAgent
from agentsgym.agents.scripted import ScriptedAgent

__all__ = ["DirectOutputAgent", "HumanAgent", "ScriptedAgent"]
