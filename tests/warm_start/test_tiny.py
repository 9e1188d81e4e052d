"""The tiny model and its tokenizer: built from nothing, the same each time."""

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsgym.tokens import codec_for
from agentsgym.warm_start.settings import TinySettings
from agentsgym.warm_start.tiny import build_model, build_tokenizer
from helpers import assistant, user

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


GAME = [
    f"open {a}-{b}-{c}: yes, or (no)?\nlook {b}!" for a in "ab" for b in ("ke", "lo") for c in "xy"
]


@pytest.fixture(scope="module")
def words():
    return build_tokenizer(GAME * 3, 400, pieces="words")


def test_by_words_no_token_is_longer_than_a_word(words):
    text = "open a-lo-x: yes, or (no)?\nlook ke!"
    pieces = [words.decode(one) for one in words.encode(text)]
    assert pieces == [
        *("open", " a", "-lo", "-x", ":", " yes", ",", " or", " (", "no", ")", "?", "\n"),
        *("look", " ke", "!"),
    ]


def test_by_phrases_a_token_is_what_stands_between_words_that_differ():
    """The names after `open` and `look` differ from text to text; all else can be told."""
    tokenizer = build_tokenizer(GAME * 3, 500, pieces="phrases")
    pieces = [tokenizer.decode(one) for one in tokenizer.encode(GAME[0])]
    assert pieces == ["open", " a", "-ke", "-x", ": yes, or (no)?\nlook", " ke", "!"]
    text = "open a wide door: yes, or (none)?"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=50)
@given(st.text())
def test_by_words_any_text_is_decoded_to_itself(words, text):
    assert words.decode(words.encode(text, add_special_tokens=False)) == text


def test_the_chat_template_only_appends(tokenizer):
    codec = codec_for(tokenizer)
    messages = [user("Yes, electric.")]
    opening = codec.open(messages)
    names = tokenizer.convert_ids_to_tokens(list(opening.token_ids))
    assert names[0] == "<|user|>" and names[-1] == "<|agent|>" and len(names) == 3
    messages += [assistant("[apple]"), user("No, not electric.")]
    answer = tuple(tokenizer.encode("[apple]"))
    bridge = codec.bridge(opening.text, messages, answer)
    assert tokenizer.convert_ids_to_tokens(list(bridge.delta))[0] == "<|end|>"
    sampled = codec.bridge(opening.text, messages, (*answer, tokenizer.eos_token_id))
    assert sampled.delta == bridge.delta[1:]


@pytest.mark.parametrize("shape", [SMALL, TinySettings(induction_heads=2)])
def test_equal_seeds_give_equal_weights(tokenizer, shape):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build_model(tokenizer, shape, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert weights_hash(build_model(tokenizer, shape, seed=1)) == weights_hash(first)
    assert weights_hash(build_model(tokenizer, shape, seed=2)) != weights_hash(first)


class Numbers:
    """A tokenizer as far as a model's shape depends on it."""

    pad_token_id, eos_token_id = 0, 1

    def __len__(self):
        return 260

    def get_vocab(self):
        return {chr(k): k for k in range(260)}


def repeated(tokens=20, sequences=32):
    """Different random tokens, and the same again."""
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randperm(250, generator=generator)[:tokens] + 5 for _ in range(sequences)]
    return torch.stack(draws).repeat(1, 2)


def attention_of_layer_1(model):
    """Shape (sequences, heads, 40, 40)."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(repeated(), output_attentions=True).attentions[1]


@pytest.mark.parametrize(
    ("width", "layers", "heads", "induction", "least"),
    [
        (64, 2, 1, 1, 0.8),
        (192, 4, 6, 3, 0.6),
        (128, 3, 8, 7, 0.2),  # of `train: auto`
        (64, 2, 8, 3, 0.2),  # heads of 8 entries compare only 4
    ],
)
def test_induction_heads_find_what_came_after_before_any_training(
    width, layers, heads, induction, least
):
    shape = {"hidden_size": width, "layers": layers, "heads": heads}
    plain = build_model(Numbers(), TinySettings(**shape))
    model = build_model(Numbers(), TinySettings(**shape, induction_heads=induction))
    attention, drawn = attention_of_layer_1(model), attention_of_layer_1(plain)
    later = torch.arange(20, 40)  # the same tokens stood 20 places before
    for head in range(induction):
        places = later[: 20 - head] - 20 + head + 1
        assert attention[:, head, later[: 20 - head], places].mean() > least
        assert drawn[:, head, later[: 20 - head], places].mean() < 0.1
    assert model.config.to_dict() == plain.config.to_dict()
    assert {n: p.shape for n, p in model.named_parameters()} == {
        n: p.shape for n, p in plain.named_parameters()
    }


def test_a_recency_head_attends_to_the_last_tokens_before_any_training():
    """The last 16 of 120 different tokens have a seventh of an attention that is spread evenly."""
    rows = torch.randperm(240).view(2, 120) + 5
    shares = []
    for recent in (0, 1):
        shape = TinySettings(layers=3, induction_heads=3, recency_heads=recent)
        model = build_model(Numbers(), shape)
        model.set_attn_implementation("eager")
        with torch.no_grad():
            layers = model(rows, output_attentions=True).attentions[1:]
        shares += [float(one[:, 3, -1, -16:].sum(-1).mean()) for one in layers]
    assert max(shares[:2]) < 0.3 and min(shares[2:]) > 0.7


def test_an_induction_head_copies_before_any_training():
    rows = repeated()
    for induction, low, high in ((0, 0.0, 0.02), (1, 0.6, 1.0)):
        shape = TinySettings(hidden_size=64, layers=2, heads=1, induction_heads=induction)
        with torch.no_grad():
            likely = build_model(Numbers(), shape)(rows).logits.argmax(-1)
        share = float((likely[:, 20:-1] == rows[:, 21:]).float().mean())
        assert low <= share <= high


def test_an_induction_head_finds_a_name_with_and_without_the_space_before_it():
    names = [f"{c}a-{c}o" for c in "bdfghjklmn"]
    texts = [f"{name}{sign} {name}" for name in names for sign in ".:"]
    tokenizer = build_tokenizer(texts, vocab_size=400, pieces="words")
    shape = TinySettings(hidden_size=128, layers=2, heads=2, head_size=64, induction_heads=1)
    model = build_model(tokenizer, shape)
    model.set_attn_implementation("eager")
    for name in names[1:]:  # all but the first have a space before them
        start, rest = name.split("-")
        rows = tokenizer(f"{' '.join(names)}.{start}", return_tensors="pt").input_ids
        assert tokenizer.decode(rows[0, -2:]) == f".{start}"
        with torch.no_grad():
            place = model(rows, output_attentions=True).attentions[1][0, 0, -1].argmax()
        assert tokenizer.decode(rows[0, place]) == f"-{rest}"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"layers": 1}, "induction_heads needs at least 2 layers"),
        ({"heads": 2}, "induction_heads and recency_heads must be at most heads, 2"),
        ({"hidden_size": 28}, "induction_heads needs heads of at least 8 entries, not 7"),
        ({"head_size": 4}, "induction_heads needs heads of at least 8 entries, not 4"),
    ],
)
def test_induction_heads_are_refused_where_they_do_not_fit(values, problem):
    with pytest.raises(ValueError, match=problem):
        TinySettings(induction_heads=3, **values)
