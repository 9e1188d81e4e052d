"""The trainer's rollouts: which tasks, when they are played, from which weights."""
