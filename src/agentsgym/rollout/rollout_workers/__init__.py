"""Whole rollouts on a Ray cluster: actors that play, and the learner's side of them."""
