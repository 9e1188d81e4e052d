"""The plugin that verifiers finds by its id `agentsgym_v1`: our environments as a taskset with its
environment, and a harness that runs in verifiers' own process."""

from agentsgym.integrations.verifiers import AgentsgymEnv, AgentsgymTaskset, InProcessHarness

__all__ = ["AgentsgymEnv", "AgentsgymTaskset", "InProcessHarness"]
