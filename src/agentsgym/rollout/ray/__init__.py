"""Whole rollouts in actors of a Ray cluster (`ray.workers`)."""
