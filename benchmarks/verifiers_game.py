"""The words of the toy game, for both virtual environments."""

ANSWER = "I would go left"
LINE = "step {} of the game: what do you do now?"
