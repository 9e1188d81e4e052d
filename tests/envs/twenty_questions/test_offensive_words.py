"""The data that the package ships has no slurs and no vulgar words in it."""

import codecs
import json
from pathlib import Path

import pytest

import agentsgym
from offensive_words import listed, offensive_in

PACKAGE = Path(agentsgym.__file__).parent
# The vocabulary of a tokenizer holds pieces of words.
TEXT = sorted(
    path
    for path in PACKAGE.rglob("*")
    if path.suffix in {".json", ".jsonl", ".yaml", ".jinja"} and path.name != "tokenizer.json"
)


@pytest.fixture(scope="module")
def scan():
    digests = listed()
    return lambda text: offensive_in(text, digests)


def strings(value):
    """Every key and text in a JSON value; the packed bits of the tables are no text."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key != "values":
                yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, str):
        yield value


def text_of(path):
    text = path.read_text(encoding="utf-8")
    return "\n".join(strings(json.loads(text))) if path.suffix == ".json" else text


def masked(word):
    return word[0] + "*" * (len(word) - 1)


@pytest.mark.parametrize("path", TEXT, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_offensive_word_is_shipped(path, scan):
    matches = sorted({masked(word) for word in scan(text_of(path))})
    assert not matches, (
        f"{path.name} has {matches}; scripts/offensive_words.py says how they are kept out"
    )


@pytest.mark.parametrize("text", ["snttbg", "gur Snttbgf", "snttbg-urnq", "zrqvhz_snttbg"])
def test_an_offensive_word_is_found_in_any_form(text, scan):
    assert scan(codecs.decode(text, "rot13"))


@pytest.mark.parametrize("text", ["spikes", "a taco", "the shrimp", "grass", "a rooster, a donkey"])
def test_a_harmless_word_is_not_found(text, scan):
    assert not scan(text)
