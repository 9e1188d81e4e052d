"""TextWorld: the environment and its games. Needs the extra `textworld` to play."""
