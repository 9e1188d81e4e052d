"""Agents: model-backed, scripted, random, human."""

from agentsgym.agents.direct import DirectOutputAgent
from agentsgym.agents.scripted import HumanAgent, RandomAgent, ScriptedAgent, SeededAgent

__all__ = ["DirectOutputAgent", "HumanAgent", "RandomAgent", "ScriptedAgent", "SeededAgent"]
