"""Wordle: the environment, its words, and a strong player."""
