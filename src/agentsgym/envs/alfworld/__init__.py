"""ALFWorld: the environment, its games, its expert. Needs the extra `alfworld` to play."""
