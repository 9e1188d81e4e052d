"""Which rollout worker plays which request, also when workers are lost."""

from dataclasses import replace

import pytest

from agentsgym.rollout.rollout_workers.board import MOST_LOSSES, Board, Ticket
from agentsgym.types import RolloutRequest
from moody import MoodyEnv

ENV = MoodyEnv(None, {})


def tickets(*names):
    return [
        Ticket(ENV, RolloutRequest("Moody", {}, {}, 0, number, 0, name))
        for number, name in enumerate(names)
    ]


def names(given):
    return {worker: "".join(t.session_id for t in some) for worker, some in given.items()}


@pytest.fixture
def board():
    board = Board()
    board.add(tickets(*"abcdef"))
    return board


def test_requests_go_in_order_to_the_workers_that_play_the_fewest(board):
    assert names(board.hand_out([1, 2], capacity=2)) == {1: "ac", 2: "bd"}
    assert board.open == 6 and board.playing(1) == 2
    board.finish("b")
    assert names(board.hand_out([1, 2, 3], capacity=2)) == {3: "e", 2: "f"}
    assert not board.hand_out([1, 2, 3], capacity=2)


def test_a_session_is_open_once(board):
    with pytest.raises(ValueError, match="session 'c' is already open"):
        board.add(tickets("g", "c"))
    with pytest.raises(ValueError, match="session 'h' is already open"):
        board.add(tickets("h", "h"))
    assert board.open == 6
    board.hand_out([1], capacity=9)
    assert board.finish("c").session_id == "c" and board.finish("c") is None
    board.add(tickets("c"))


def test_what_a_lost_worker_played_goes_first_to_others(board):
    board.hand_out([1, 2], capacity=2)
    assert board.lose(1) == [] and board.replayed == 2
    assert names(board.hand_out([2, 3], capacity=4)) == {3: "acf", 2: "e"}


def test_a_request_that_was_lost_often_is_played_alone_and_then_given_up(board):
    for _ in range(MOST_LOSSES - 1):
        board.hand_out([1], capacity=1)
        assert board.lose(1) == []
    given = board.hand_out([1, 2], capacity=4)
    assert names(given) == {1: "a", 2: "bcde"}
    assert [t.session_id for t in board.lose(1)] == ["a"]
    assert board.open == 5 and board.finish("a") is None
    assert names(board.hand_out([1, 2], capacity=4)) == {1: "f"}


def test_what_is_played_first_holds_the_others_back(board):
    board.hand_out([1, 2], capacity=2)
    asked = [replace(ticket, first=True) for ticket in tickets(*"xyz")]
    board.add(asked)
    assert names(board.hand_out([1, 2], capacity=1)) == {1: "x", 2: "y"}
    board.finish("a")  # its place is not given to another, nor to what a lost worker played
    assert board.lose(2) == [] and names(board.hand_out([1, 3], capacity=1)) == {3: "y"}
    assert names(board.hand_out([1, 3], capacity=2)) == {1: "z"}
    for name in "xyz":
        assert not board.hand_out([1, 3], capacity=9)
        board.finish(name)
    assert names(board.hand_out([1, 3], capacity=3)) == {3: "be", 1: "df"}


def test_a_late_answer_ends_a_request_that_waits_again(board):
    board.hand_out([1], capacity=1)
    board.lose(1)
    assert board.finish("a").session_id == "a"
    assert names(board.hand_out([1], capacity=1)) == {1: "b"}
