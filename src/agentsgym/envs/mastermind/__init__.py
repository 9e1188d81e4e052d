"""Mastermind in words: the environment, its codes, and its best player."""
