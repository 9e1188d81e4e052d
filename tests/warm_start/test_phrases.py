"""The fixed phrases of a game, by hand; and any text is the pieces of a pattern."""

import re

from hypothesis import given
from hypothesis import strategies as st

from agentsgym.warm_start.phrases import LEAST, fixed_phrases, pieces_pattern

NAMES = ["rope", "lamp", "map", "drum"]
GAME = [f"You find a {name}. Take it or leave it?" for name in NAMES * LEAST]


def pieces(phrases, text):
    return re.findall(pieces_pattern(phrases), text)


def test_phrases_stand_between_what_differs():
    phrases = fixed_phrases(GAME)
    assert phrases == [". Take it or leave it?", "You find a"]
    assert pieces(phrases, GAME[0]) == ["You find a", " rope", ". Take it or leave it?"]


def test_what_is_rare_is_no_phrase():
    assert fixed_phrases(GAME[: LEAST - 1]) == []
    assert fixed_phrases([]) == []


def test_a_word_that_stands_in_a_sentence_and_alone_is_in_no_phrase():
    """Half of the places of ` map` can be told, in the title, and half can't."""
    phrases = fixed_phrases([f"The map of all.\n{text}" for text in GAME])
    assert pieces(phrases, "The map of all.")[:2] == ["The", " map"]


def test_a_phrase_ends_where_a_word_does():
    phrases = fixed_phrases(GAME)
    assert pieces(phrases, "You find apples.") == ["You", " find", " apples", "."]


@given(st.lists(st.text(alphabet="ab .\n-", max_size=12), max_size=40), st.text(max_size=30))
def test_the_pieces_of_a_text_are_the_text(texts, text):
    assert "".join(pieces(fixed_phrases(texts * LEAST), text)) == text
