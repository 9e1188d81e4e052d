"""Forms that a call demands of its answer, as grammars: what they allow, and what cannot be
granted. The tokenizers are those of real templates."""

import json
import random
import sys

import numpy as np
import pytest

import call_templates
from agentsgym.tokens import codec_for, grammars
from agentsgym.tokens.grammars import Grammar, grammar_of
from agentsgym.types import Message, ModelCall
from agentsgym.types.supports import mask_of
from chat_tokenizers import template, tokenizer_for

HI = (Message("user", "hi"),)
CLOSED = {"type": "object", "additionalProperties": False}
QWEN = tokenizer_for(template("qwen2_5"), "<|im_end|>")


def tool(name, **properties):
    schema = {**CLOSED, "properties": properties, "required": list(properties)}
    function = {"name": name, "description": "It helps.", "parameters": schema}
    return {"type": "function", "function": function}


LOOK = tool("look", at={"type": "string", "maxLength": 8})
ADD = tool("add", number={"type": "integer"}, to={"enum": ["x", "y"]})


def held(kind, wanted, tokenizer=QWEN, tools=(), exact=True):
    wanted = wanted if isinstance(wanted, str) else json.dumps(wanted)
    call = ModelCall(HI, tools, form=(kind, wanted))
    return grammar_of(codec_for(tokenizer), tokenizer, call, exact=exact)


def drawn(grammar, tokenizer=QWEN, seed=0, most=400):
    """A random answer, and how it ended."""
    draw, size = random.Random(seed), len(tokenizer)
    walk = grammar.walk(tokenizer, size)
    ids = walk.forced()
    while len(walk.allowed) and len(ids) < most:
        ids.append(draw.choice(np.flatnonzero(mask_of(walk.allowed, size)).tolist()))
        walk.take(ids[-1])
        ids += walk.forced()
    return ids, walk


def test_an_answer_is_json_of_the_schema_as_python_writes_it():
    schema = LOOK["function"]["parameters"]
    for seed in range(20):
        ids, walk = drawn(held("json", schema), seed=seed)
        text = QWEN.decode(ids)
        read = json.loads(text.removesuffix("<|im_end|>"))
        assert not walk.error and text.endswith("<|im_end|>")
        assert set(read) == {"at"} and len(read["at"]) <= 8
        assert text.startswith('{"at": "')


def test_what_is_spelled_out_is_forced_and_a_pattern_is_held():
    walk = held("json", {"const": {"a": 1}}).walk(QWEN, len(QWEN))
    assert QWEN.decode(walk.forced()) == '{"a": 1}<|im_end|>'
    assert not len(walk.allowed) and not walk.error
    said = {QWEN.decode(drawn(held("regex", "a/?[bc]{1,2}"), seed=seed)[0]) for seed in range(60)}
    assert said <= {f"a{a}{b}{c}<|im_end|>" for a in ("", "/") for b in "bc" for c in ("", *"bc")}
    assert len(said) > 6


TEMPLATES = {
    **{name: template(name) for name in ("qwen2_5", "qwen3_training", "gptoss", "llama3_1")},
    **{name: getattr(call_templates, name) for name in ("MISTRAL_3", "MISTRAL_11", "DEEPSEEK_3")},
    **{name: getattr(call_templates, name) for name in ("GRANITE_3", "PHI_4_MINI", "DEEPSEEK_31")},
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_demanded_call_is_one_that_the_template_writes(name):
    tokenizer = tokenizer_for(TEMPLATES[name])
    codec = codec_for(tokenizer).with_tools((LOOK, ADD))
    seen = set()
    for seed in range(8):
        for wanted in ("", "add"):
            ids, walk = drawn(held("call", wanted, tokenizer, (LOOK, ADD)), tokenizer, seed)
            message, unread = codec.answer(ids)
            (call,) = message.tool_calls
            function = call["function"]
            assert not (unread or walk.error)
            assert function["name"] == "add" or not wanted
            keys = {"add": {"number", "to"}, "look": {"at"}}[function["name"]]
            assert set(function["arguments"]) == keys
            seen.add(function["name"])
    assert seen == {"look", "add"}


def test_with_tools_an_answer_has_the_format_or_calls_one():
    grammar = held("json", {"type": "boolean"}, tools=(ADD,))
    said = {QWEN.decode(drawn(grammar, seed=seed)[0])[:11] for seed in range(40)}
    assert said == {"true<|im_end|>"[:11], "false<|im_end|>"[:11], "<tool_call>"}


def test_a_string_has_no_control_token_but_may_spell_one():
    walk = held("json", {"type": "string"}).walk(QWEN, len(QWEN))
    control = QWEN.convert_tokens_to_ids(["<|im_end|>", "</tool_call>", "<|im_start|>", "<bos>"])
    walk.forced()
    for letter in "<|im_end|>":
        token, mask = QWEN.convert_tokens_to_ids(letter), mask_of(walk.allowed, len(QWEN))
        assert mask[token] and not mask[control].any()
        walk.take(token)


def test_a_call_that_cannot_be_demanded_is_free_and_a_format_is_refused(caplog):
    grammars._warn_free.cache_clear()
    xml = tokenizer_for(template("glm4moe"))
    assert held("call", "", xml, (ADD,)) is None
    assert held("call", "", tools=(ADD,), exact=False) is None
    assert "no call with one JSON object" in caplog.text
    assert "does not say what each token was chosen from" in caplog.text
    with pytest.raises(ValueError, match="does not say what each token was chosen from"):
        held("json", {}, exact=False)
    with pytest.raises(ValueError, match="no call with one JSON object"):
        held("json", {}, xml, (ADD,))


NODE = {**CLOSED, "properties": {"next": {"$ref": "#/$defs/node"}}}
HOSTILE = {
    "endless": (
        "json",
        {"$defs": {"node": {**NODE, "required": ["next"]}}, "$ref": "#/$defs/node"},
    ),
    "of itself": ("json", {"$ref": "#"}),
    "in a circle": ("json", {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
    "elsewhere": ("json", {"$ref": "http://localhost/schema"}),
    "impossible": ("json", {"type": "integer", "minimum": 5, "maximum": 3}),
    "not known": ("json", {"type": "array", "uniqueItems": True}),
    "no schema": ("json", {"type": "banana"}),
    "large": ("json", {"enum": ["x" * 1000] * 1000}),
    "a bad pattern": ("regex", "(a"),
    "an empty pattern": ("regex", "[^\\s\\S]"),
    "a pattern that looks": ("regex", "(?=a)b"),
    "a large pattern": ("regex", "a" * 100_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_has_no_answer_is_refused_with_a_sentence(name):
    with pytest.raises(ValueError, match=r"cannot be (granted|demanded)") as caught:
        held(*HOSTILE[name])
    assert len(str(caught.value)) < 500


def test_recursion_ends_and_a_dead_end_is_told():
    tree = held("json", {"$defs": {"node": NODE}, "$ref": "#/$defs/node"})
    assert json.loads(QWEN.decode(drawn(tree)[0]).removesuffix("<|im_end|>")) is not None
    circle = {"a": {"type": "boolean"}, "b": {"$ref": "#/properties/b"}}
    dead = held("json", {**CLOSED, "properties": circle, "required": ["a", "b"]})
    _, walk = drawn(dead)
    assert "cannot be granted" in walk.error and not len(walk.allowed)
    with pytest.raises(ValueError, match="cannot be granted"):
        Grammar("nonsense {").walk(QWEN, len(QWEN))


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    grammars._spelling.cache_clear()
    with pytest.raises(ValueError, match=r"extra 'grammar'.*agentsgym\[grammar\]"):
        held("json", {"const": "nobody asked for it before"})
