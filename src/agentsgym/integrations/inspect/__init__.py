"""Inspect (`inspect-ai`): our rollouts as its logs, our environments as its tasks."""
