"""Warm start: supervised training on recorded games, before reinforcement learning."""
