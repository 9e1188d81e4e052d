"""Answers that a grammar holds, from the engines: their probabilities, batches, and faults."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from generation_helpers import ask, assert_exact

from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.plain import PlainEngine
from agentsgym.tokens import codec_for
from agentsgym.tokens.grammars import grammar_of
from agentsgym.types import GenerationRequest, Message, ModelCall, SamplingParams
from agentsgym.types.supports import mask_of
from helpers import CHATML, build_tokenizer, random_llama

ENGINES = [EmbeddedEngine, PlainEngine]
TOKENIZER = build_tokenizer(CHATML)
CODEC = codec_for(TOKENIZER)
HI = (Message("user", "hi"),)
CONTEXT = CODEC.open(list(HI)).token_ids
FORM = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 9}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


def grammar(wanted=FORM, kind="json"):
    call = ModelCall(HI, form=(kind, wanted if kind == "regex" else json.dumps(wanted)))
    return grammar_of(CODEC, TOKENIZER, call, exact=True)


def request(number, choices, most=80):
    params = SamplingParams(most)
    return GenerationRequest(f"s{number}", CONTEXT, params, number, choices=choices)


@pytest.fixture(scope="module")
def model():
    return random_llama(TOKENIZER).eval()


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_are_those_of_the_grammar_with_their_own_probabilities(model, engine):
    """In a batch with free ones, and the same whatever else is in it."""
    made = engine(model, TOKENIZER, capacity=4)
    held = pickle.loads(pickle.dumps(grammar()))
    batch = [request(n, held if n % 3 else None) for n in range(9)]
    results = ask(made, batch)
    for one in batch:
        result = results[one.session_id]
        assert_exact(model, CONTEXT, result)
        assert result.supports.fits(np.array(result.token_ids))
        if one.choices is None:
            assert not len(result.supports)
            continue
        assert len(result.supports) == len(result.token_ids)
        if result.finish_reason == "stop":
            read = json.loads(TOKENIZER.decode(result.token_ids, skip_special_tokens=True))
            assert set(read) == {"city", "days"}
        alone = ask(engine(model, TOKENIZER), [replace(one, session_id="alone")])["alone"]
        assert alone.token_ids == result.token_ids and alone.supports == result.supports


def test_the_probabilities_of_all_answers_of_a_small_grammar_sum_to_one(model):
    """By enumeration of what may come after each beginning, in all spellings."""
    held = grammar({"enum": ["no", "nor", 7]})
    size, found = model.config.vocab_size, {}

    def follow(ids, logp):
        walk = held.walk(TOKENIZER, size)
        walk.forced()
        for token in ids:
            walk.take(token)
        if not len(walk.allowed):
            found[tuple(ids)] = logp
            return
        options = np.flatnonzero(mask_of(walk.allowed, size)).tolist()
        with torch.no_grad():
            logits = model(torch.tensor([[*CONTEXT, *ids]])).logits[0, -1].double()
        chances = logits[options].log_softmax(-1).tolist()
        for token, chance in zip(options, chances):
            follow([*ids, token], logp + chance)

    follow([], 0.0)
    assert sum(np.exp(list(found.values()))) == pytest.approx(1.0, abs=1e-9)
    texts = {TOKENIZER.decode(ids, skip_special_tokens=True) for ids in found}
    assert texts == {'"no"', '"nor"', "7"}
    results = ask(EmbeddedEngine(model, TOKENIZER), [request(n, held) for n in range(30)])
    for result in results.values():
        assert sum(result.logprobs) == pytest.approx(found[result.token_ids], abs=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_answer_that_is_cut_or_dead_or_spelled_out_ends_alone(model, engine):
    circle = {"a": {"type": "boolean"}, "b": {"$ref": "#/properties/b"}}
    dead = {**FORM, "properties": circle, "required": ["a", "b"]}
    only = grammar({"const": "x"})
    batch = [
        request(0, grammar(), most=5),
        request(1, grammar(dead)),
        request(2, only),
        request(3, only, most=1),
        request(4, None, most=9),
    ]
    results = ask(engine(model, TOKENIZER, capacity=8), batch)
    cut, failed, told, short, free = (results[f"s{n}"] for n in range(5))
    assert cut.finish_reason == "length" and len(cut.token_ids) == 5
    assert "cannot be granted" in failed.error
    assert TOKENIZER.decode(told.token_ids, skip_special_tokens=True) == '"x"'
    assert told.finish_reason == "stop" and set(told.logprobs) == {0.0}
    assert short.finish_reason == "length" and len(short.token_ids) == 1
    alone = ask(engine(model, TOKENIZER), [request(4, None, most=9)])["s4"]
    assert free.token_ids == alone.token_ids
