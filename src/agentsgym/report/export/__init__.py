"""Stored rollouts as datasets that other trainers read."""
