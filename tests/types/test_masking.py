"""Secrets in text."""

import pytest

from agentsgym.types import text as texts
from agentsgym.types.text import mask_secrets, remember_secret


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
