"""The environment reads what was said, not how a model marks it up."""

import pytest
from trl.chat_template_utils import add_response_schema

from agentsgym.tokens import ActionText, codec_for
from chat_tokenizers import template, tokenizer_for
from helpers import CHATML, build_tokenizer

HARMONY = "<|channel|>analysis<|message|>hm <|message|>?<|end|><|start|>assistant"
ANSWERS = {
    "gptoss": [
        (f"{HARMONY}<|channel|>final<|message|>yes<|return|>", "yes"),
        ("<|channel|>final <|constrain|>json<|message|>{}<|return|>", "{}"),
        (HARMONY, ""),
        ("<|channel|>analysis", ""),
        ("yes<|return|>", "yes"),
        (f"{HARMONY}<|channel|>final<|message|>ye", "ye"),
    ],
    "gemma4_v5": [
        ("<|channel>thought\nhm<channel|>yes<turn|>", "yes"),
        ("<|channel>thought\nhm", ""),
        ("yes<turn|>", "yes"),
    ],
    "muse_glimmer": [
        (" to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>yes<|eot|>", "yes"),
        (" to=user<|message|>yes<|eot|>", "yes"),
    ],
    "qwen3": [("<think>\nhm\n</think>\n\nyes", "<think>\nhm\n</think>\n\nyes")],
}
CASES = [(name, answer, text) for name, cases in ANSWERS.items() for answer, text in cases]


@pytest.mark.parametrize(("name", "answer", "text"), CASES)
def test_only_the_final_channel_is_read(name, answer, text):
    tokenizer = tokenizer_for(template(name) + "{# <|return|><|eom|><|constrain|> #}")
    ids = tokenizer.encode(answer, add_special_tokens=False)
    assert ActionText(tokenizer)(ids) == text


@pytest.mark.parametrize(("name", "answer", "text"), CASES[:4] + CASES[6:8])
def test_a_tokenizers_own_response_template_is_used(name, answer, text):
    text_of = template(name) + "{# <|return|><|constrain|> #}"
    tokenizer = tokenizer_for(text_of, "<pad>")  # one of its own, for it is changed
    tokenizer.chat_template = template(name)
    add_response_schema(tokenizer)
    ids = tokenizer.encode(answer, add_special_tokens=False)
    assert ActionText(tokenizer)(ids) == text or "constrain" in answer


def test_an_end_of_turn_that_is_no_special_token_is_not_read():
    tokenizer = tokenizer_for(template("phi3"), special=False)
    ids = tokenizer.encode("yes<|end|>", add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=True) == "yes<|end|>"
    assert ActionText(tokenizer)(ids, codec_for(tokenizer).ends) == "yes"


def test_ids_that_an_engine_stops_at_are_not_read():
    tokenizer = tokenizer_for("{{ messages[0]['content'] }}{# <|over|> #}", special=False)
    ids = tokenizer.encode("yes<|over|>", add_special_tokens=False)
    assert ActionText(tokenizer)(ids) == "yes<|over|>"
    assert ActionText(tokenizer, ids[-1:])(ids) == "yes"


def test_any_other_answer_is_decoded_as_it_is():
    for text in (None, CHATML):
        tokenizer = build_tokenizer(text)
        ids = tokenizer.encode(" Is it an animal?\n\n", add_special_tokens=False)
        assert ActionText(tokenizer)([*ids, tokenizer.eos_token_id]) == " Is it an animal?\n\n"
