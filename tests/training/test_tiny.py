"""The tiny model and its tokenizer: built from nothing, the same each time."""

import hashlib

import pytest
import torch

from agentsgym.tokens import codec_for
from agentsgym.training.tiny import build_model, build_tokenizer
from agentsgym.training.warm_start_settings import TinySettings

LINES = [
    "Is it electric?",
    "Yes, electric.",
    "No, not electric.",
    "Is it bigger than a person?",
    "Yes, bigger than a person.",
    "No, not bigger than a person.",
    "[apple]",
    "[alarm clock]",
]
SMALL = TinySettings(hidden_size=32, layers=1, heads=2, intermediate_size=32, max_positions=64)


def weights_hash(model):
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(LINES * 3, 600)


def test_a_line_is_one_token_also_within_a_text(tokenizer):
    assert [len(tokenizer.encode(line)) for line in LINES] == [1] * len(LINES)
    prompt = tokenizer.encode("Yes, electric.\nNo, not bigger than a person.")
    assert prompt == [
        *tokenizer.encode("Yes, electric."),
        *tokenizer.encode("\n"),
        *tokenizer.encode("No, not bigger than a person."),
    ]


def test_the_vocabulary_depends_on_the_texts_alone(tokenizer):
    again = build_tokenizer(list(reversed(LINES * 3)), 600)
    assert again.get_vocab() == tokenizer.get_vocab()
    assert again.encode(" ".join(LINES)) == tokenizer.encode(" ".join(LINES))


def test_the_vocabulary_has_a_least_size():
    with pytest.raises(ValueError, match="vocab_size must be at least 261, got 100"):
        build_tokenizer(LINES, 100)


def test_the_chat_template_only_appends(tokenizer):
    codec = codec_for(tokenizer)
    user, agent = {"role": "user"}, {"role": "assistant"}
    messages = [user | {"content": "Yes, electric."}]
    opening = codec.open(messages)
    names = tokenizer.convert_ids_to_tokens(list(opening.token_ids))
    assert names[0] == "<|user|>" and names[-1] == "<|agent|>" and len(names) == 3
    messages += [agent | {"content": "[apple]"}, user | {"content": "No, not electric."}]
    answer = tuple(tokenizer.encode("[apple]"))
    bridge = codec.bridge(opening.text, messages, answer)
    assert tokenizer.convert_ids_to_tokens(list(bridge.delta))[0] == "<|end|>"
    sampled = codec.bridge(opening.text, messages, (*answer, tokenizer.eos_token_id))
    assert sampled.delta == bridge.delta[1:]


def test_equal_seeds_give_equal_weights(tokenizer):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build_model(tokenizer, SMALL, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert weights_hash(build_model(tokenizer, SMALL, seed=1)) == weights_hash(first)
    assert weights_hash(build_model(tokenizer, SMALL, seed=2)) != weights_hash(first)
