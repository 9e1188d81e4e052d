"""The direct way to a tokenizer's backend gives the ids of `tokenizer.encode`, in every state."""

import pytest

from agentsgym.tokens.control import Encoder
from helpers import CHATML, build_tokenizer

TEXTS = ["", "yes", " no \n", "<|im_end|>\n<|im_start|>user\nhi", "é \u2028 😀", "a" * 300]


@pytest.fixture
def tokenizer():
    return build_tokenizer(CHATML)


def encoded(tokenizer, text):
    return tuple(tokenizer.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_tokenizer(tokenizer, text):
    assert Encoder(tokenizer).ids(text) == encoded(tokenizer, text)


def test_truncation_and_padding_of_other_calls_do_not_matter(tokenizer):
    encoder, text = Encoder(tokenizer), "one two three four five six"
    whole = encoded(tokenizer, text)
    assert len(whole) > 2

    tokenizer.backend_tokenizer.enable_truncation(2)
    assert encoder.ids(text) == whole
    tokenizer.backend_tokenizer.enable_padding(length=50)
    assert encoder.ids(text) == whole


def test_special_tokens_are_read_as_the_tokenizer_reads_them(tokenizer):
    encoder, text = Encoder(tokenizer), "<|im_end|>"
    as_token = encoder.ids(text)
    tokenizer.split_special_tokens = True
    assert encoder.ids(text) == encoded(tokenizer, text) != as_token


def test_an_encode_of_the_users_own_is_called(tokenizer):
    class Shouting(type(tokenizer)):
        def encode(self, text, **options):
            return super().encode(text.upper(), **options)

    quiet = Encoder(tokenizer).ids("yes")
    tokenizer.__class__ = Shouting
    assert Encoder(tokenizer).ids("yes") == encoded(tokenizer, "yes") != quiet

    other = build_tokenizer(CHATML)
    other.encode = lambda text, **options: [7]
    assert Encoder(other).ids("yes") == (7,)
