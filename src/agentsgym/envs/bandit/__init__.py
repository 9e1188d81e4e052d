"""Bandit: a Bernoulli bandit in words, with exact best play."""
