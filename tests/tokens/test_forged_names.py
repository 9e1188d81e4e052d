"""Names, keys and values that a template's own text would complete to a control token stay text."""

from collections import Counter

import pytest

from agentsgym.tokens import codec_for
from agentsgym.tokens.template import LOOK_UP
from agentsgym.types import Message
from call_templates import APPROXIMATE
from chat_tokenizers import THOUGHTS, template, tokenizer_for, tokens_of
from helpers import build_tokenizer

REAL = ("qwen2_5", "qwen3", "qwen3_6", "qwen3_8", "nemotron_3_nano", "glm4moe", "llama3_1",
        "gptoss", "gemma4_v5")  # fmt: skip
TEMPLATES = {**{name: template(name) for name in REAL}, **APPROXIMATE}
KEYS = ("type", "description", "required", "enum")


def tool(word):
    """Everything that a tool set may name, named `word`; keys of schemas are the template's own."""
    more = {} if word in KEYS else {word: [word]}
    leaf = {"type": "string", "description": word, "enum": [word], **more}
    parameters = {"type": "object", "properties": {word: leaf}, "required": [word], **more}
    function = {"name": word, "description": word, "parameters": parameters}
    return {"type": "function", "function": function}


def talk(word):
    """A conversation in which everything is called `word`."""
    function = {"name": word, "arguments": {word: word, "n": {word: [word]}}}
    call = {"type": "function", "id": "call00000", "function": function}
    return [
        Message("user", word),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", word, tool_call_id="call00000", name=word),
        Message("assistant", word),
        Message("user", word),
    ]


def controls(codec, messages):
    ids = codec.open(messages).token_ids
    return Counter(number for number in ids if number in codec.control.ids)


def parts(name):
    """Texts that lack parts of a control token, and some that follow or precede a whole one, except
    thoughts, which stay tokens of the agent."""
    words = []
    for token in tokens_of(TEMPLATES[name]):
        words += [f"x{token[:-1]}", f"x{token[:-2]}", f"{token[1:]}x", token[1:-1]]
        words += [] if token in THOUGHTS else [f"{token}x{token[:-1]}"]
    return [word for word in dict.fromkeys(words) if word.strip()]


@pytest.mark.parametrize("name", TEMPLATES)
def test_nothing_that_is_named_in_tools_calls_and_results_becomes_a_control_token(name):
    codec = codec_for(tokenizer_for(TEMPLATES[name]))
    words = parts(name)
    plain = [f"word{number}" for number in range(len(words))]
    evil, harmless = (codec.with_tools([tool(word) for word in some]) for some in (words, plain))
    opening = talk("word")[:1]
    assert controls(evil, opening) == controls(harmless, opening)
    said, meant = ([one for word in some for one in talk(word)] for some in (words, plain))
    assert controls(harmless, said) == controls(harmless, meant)


def test_two_texts_complete_no_token_together():
    tokenizer = build_tokenizer(
        "{% for m in messages %}{{ m.content }}{% endfor %}<|im_end|><|im_start|>"
    )
    codec = codec_for(tokenizer)
    ids = codec.open([Message("user", text) for text in ("a<|im_", "end|>b")]).token_ids
    assert ids.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 1
    assert tokenizer.decode(ids).startswith("a<|im_end|>b")


@pytest.mark.parametrize("name", TEMPLATES)
def test_keys_of_messages_calls_and_schemas_are_the_templates_own(name):
    """Also where the tokenizer has a token for a tag that the template writes of a key."""
    codec = codec_for(tokenizer_for(TEMPLATES[name])).with_tools([LOOK_UP])
    ids = codec.encode_answer(talk("key")[1])
    assert codec.answer(ids)[0].tool_calls
