"""Values of others become plain data, whatever they are; secrets in texts are masked."""

import json
import math

import numpy as np
import pytest

from agentsgym.types import text as texts
from agentsgym.types.text import (
    clean_text,
    cut,
    mask_secrets,
    plain,
    remember_secret,
    short_repr,
)


class Bad:
    """An object whose own methods fail."""

    def __repr__(self):
        raise SystemError("no")

    def __iter__(self):
        raise ValueError("no")


def cyclic():
    value = {}
    value["a"] = value["b"] = value
    return value


def deep():
    value = []
    for _ in range(20_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "make",
    [
        cyclic,
        deep,
        Bad,
        lambda: {Bad(): 1},
        lambda: 10**9999,
        lambda: b"x" * 10**6,
        lambda: {"k": Bad},
    ],
)
def test_what_json_cannot_say_becomes_short(make):
    value = make()
    text = json.dumps(plain(value), allow_nan=False)
    assert len(text) < 5_000_000
    assert len(short_repr(value)) < 700


def test_plain_data_comes_back_equal():
    value = {"a": [1, 2.5, None, True, "é"], "b": {"c": [[], {}]}}
    copy = plain(value)
    assert copy == value and copy["a"] is not value["a"]
    assert plain({1: (2, {3}), "n": np.float32(0.5), "m": np.arange(2)}) == {
        "1": [2, [3]],
        "n": 0.5,
        "m": [0, 1],
    }
    assert plain([math.nan, math.inf]) == [None, None]


@pytest.mark.parametrize(
    ("text", "clean"),
    [("plain", "plain"), ("é", "é"), ("a\ud800b", "a\ufffdb"), ("\ud83d\ude00", "\U0001f600")],
)
def test_no_lone_surrogate_is_left(text, clean):
    assert clean_text(text) == clean
    assert plain({text: [text]}) == {clean: [clean]}
    clean_text(text).encode()


def test_a_long_text_keeps_its_beginning_and_its_end():
    assert cut("abc", 3) == "abc"
    assert cut("a" * 100 + "z" * 100, 20) == "a" * 10 + " … 180 characters … " + "z" * 10


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://user:pass@host:1/v1: gone", "http://***@host:1/v1: gone"),
        ("https://token@host/v1", "https://***@host/v1"),
        ("http://host/v1?api_key=abc&model=m", "http://host/v1?api_key=***&model=m"),
        ("http://host/?a=1&access_token=x#top", "http://host/?a=1&access_token=***#top"),
        ("Authorization: Bearer abc.def-123 was refused", "Authorization: Bearer *** was refused"),
        ("mail me@home, basic training of bearers", "mail me@home, basic training of bearers"),
        ("http://host/a@b", "http://host/a@b"),
    ],
)
def test_credentials_are_recognized_by_their_form(text, masked):
    assert mask_secrets(text) == masked


def test_a_remembered_secret_is_masked_wherever_it_stands(monkeypatch):
    monkeypatch.setattr(texts, "_KNOWN", set())
    remember_secret("hunter2secret")
    remember_secret("the")  # too short to be told from a word
    assert mask_secrets("the key 'hunter2secret' is wrong") == "the key '***' is wrong"
