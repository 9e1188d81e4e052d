"""agentsgym: train LLM agents that learn within a task."""
