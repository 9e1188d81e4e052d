"""The trainer's rollouts: their tasks, when they are played, and with which weights."""
