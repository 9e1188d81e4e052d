"""A legal move in a new game, for the first prompt."""

import copy

from agentsgym.envs.textarena.moves import moves
from agentsgym.envs.textarena.play import Play

MOST_TRIED = 200


def example_move(play: Play) -> str:
    """The first listed move that the game accepts, if possible one that does not end it.

    Moves are tried on copies of the game. Crosswords and Sudoku accept only right letters and
    digits, so in these two games the example fills one cell.
    """
    listed = moves(play.game.name, play.raw)
    accepted = ""
    for move in listed[:MOST_TRIED]:
        tried = copy.deepcopy(play)
        tried.step(move)
        if not tried.malformed:
            accepted = accepted or move
            if not tried.done:
                return move
    return accepted or listed[0]
