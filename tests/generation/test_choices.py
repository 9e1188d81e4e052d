"""Answers that are chosen among some, and tokens that top-k and top-p left: what engines sample and
what they say that it was chosen from."""

import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from generation_helpers import ask, assert_exact, build_model, paged
from hypothesis import given
from hypothesis import strategies as st

from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.plain import PlainEngine
from agentsgym.types import GenerationRequest, SamplingParams
from agentsgym.types.choices import Choices, Walk, trie_of
from agentsgym.types.supports import Supports, joined_supports

ENGINES = [EmbeddedEngine, PlainEngine]
# 9 ends all; "4 5" begins "4 5 6"; after 7 there is no choice.
ANSWERS = [(4, 5, 9), (4, 5, 6, 9), (4, 8, 9), (7, 7, 3, 9)]
CONTEXT = (1, 2, 3)


def request(number=0, answers=ANSWERS, context=CONTEXT, most=8, **sampling):
    choices = None if answers is None else Choices.of(answers)
    params = SamplingParams(max_tokens=most, **sampling)
    return GenerationRequest(f"s{number}", context, params, seed=number, choices=choices)


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_are_among_the_choices_with_their_own_probabilities(tokenizer, engine):
    model = build_model()
    made = engine(model, tokenizer, capacity=8)
    results = ask(made, [request(n, temperature=3.0) for n in range(200)]).values()
    seen = Counter(result.token_ids for result in results)
    assert set(seen) == set(ANSWERS)
    chances = {}
    for result in results:
        assert result.finish_reason == "stop"
        assert_exact(model, CONTEXT, result, temperature=3.0)
        chances[result.token_ids] = np.exp(sum(result.logprobs))
    assert sum(chances.values()) == pytest.approx(1.0, abs=1e-4)
    misfit = sum((seen[a] - 200 * p) ** 2 / (200 * p) for a, p in chances.items())
    assert misfit < 16.3  # chi-square with 3 degrees of freedom, 0.1 %
    by_answer = {result.token_ids: result.supports for result in results}
    assert by_answer[4, 5, 9] == Supports.of([(0, [4, 7]), (1, [5, 8]), (2, [6, 9])])
    assert by_answer[7, 7, 3, 9] == Supports.of([(0, [4, 7]), (1, [7]), (2, [3]), (3, [9])])


def test_forced_tokens_are_appended_without_a_pass(tokenizer):
    engine = EmbeddedEngine(build_model(), tokenizer, capacity=8)
    longest = [(*range(10, 40), 9), (*range(10, 40), 8, 7, 6, 9)]
    result = ask(engine, [request(answers=longest, most=40)])["s0"]
    assert result.token_ids in longest
    assert engine.stats.forward_passes == 1
    only = ask(engine, [request(answers=longest[:1], most=40)])["s0"]
    assert (only.token_ids, only.finish_reason) == (longest[0], "stop")
    assert engine.stats.forward_passes == 1
    cut = ask(engine, [request(answers=longest[:1], most=5)])["s0"]
    assert (cut.token_ids, cut.finish_reason) == (longest[0][:5], "length")
    cut = ask(engine, [request(answers=longest, most=5)])["s0"]
    assert (cut.token_ids, cut.finish_reason) == (longest[0][:5], "length")


@pytest.mark.parametrize("engine", ENGINES)
def test_free_and_bound_requests_share_passes_and_turns_go_on(tokenizer, engine):
    """The noise of a request is its own, and a next turn reads what was forced before."""
    model = build_model()
    together = engine(model, tokenizer, capacity=8, stop_token_ids=[])
    mixed = [request(n, ANSWERS if n % 2 else None) for n in range(6)]
    results = ask(together, mixed)
    alone = engine(model, tokenizer, capacity=8, stop_token_ids=[])
    for one in mixed:
        result = ask(alone, [one])[one.session_id]
        assert result.token_ids == results[one.session_id].token_ids
        assert result.logprobs == pytest.approx(results[one.session_id].logprobs, abs=1e-5)
        assert len(result.supports) == (len(result.token_ids) if one.choices else 0)
        context = (1, 2, 3, *result.token_ids, 11, 12)
        number = int(one.session_id[1:])
        turn = ask(together, [request(number, context=context)])[one.session_id]
        assert_exact(model, context, turn)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("cut", [{"top_k": 5}, {"top_p": 0.6}, {"top_k": 9, "top_p": 0.8}], ids=str)
def test_what_truncation_leaves_is_recorded(tokenizer, engine, cut):
    model = build_model()
    made = engine(model, tokenizer, capacity=8, stop_token_ids=[])
    requests = [request(n, None, most=4, temperature=0.8, **cut) for n in range(8)]
    for result in ask(made, [*requests, request(8, None, most=4)]).values():
        if result.session_id == "s8":
            assert not len(result.supports)
            continue
        assert result.supports.at.tolist() == [0, 1, 2, 3]
        assert result.supports.sizes.max() <= cut.get("top_k", 10**6)
        assert_exact(model, CONTEXT, result, temperature=0.8)
    bound = ask(made, [request(9, top_k=1)])["s9"]
    assert bound.logprobs == (0.0,) * len(bound.token_ids)


ALIKE = [(4, 5, 9), (4, 6, 9), (7, 7, 9), (4, 5, 6, 7, 9), (4, 8)]


def chances_of(model, context, answers, temperature=1.0):
    """Of whole answers, each read by itself."""
    totals = []
    for answer in answers:
        logits = model(torch.tensor([[*context, *answer]])).logits[0].double() / temperature
        logps = logits.log_softmax(-1)
        totals.append(sum(logps[len(context) + k - 1, t] for k, t in enumerate(answer)))
    return torch.stack(totals).softmax(0).detach().numpy()


@pytest.mark.parametrize(
    ("kind", "most", "in_blocks"),
    [("llama", 512, False), ("mistral", 2, False), ("gemma", 2, True), ("mistral", 512, True)],
)
def test_whole_answers_have_the_probability_of_all_their_tokens(
    tokenizer, monkeypatch, kind, most, in_blocks
):
    """Also where a pass reads a few beginnings only, over blocks, with windows, and beside free
    requests; the next turn reads nothing of the answers that were not taken."""
    monkeypatch.setattr("agentsgym.generation.embedded.engine.MOST_READ", most)
    model = build_model(kind, **({"sliding_window": 3} if kind == "mistral" else {}))
    engine = EmbeddedEngine(model, tokenizer, capacity=8, stop_token_ids=[])
    engine = paged(engine, monkeypatch) if in_blocks else engine
    requests = [
        replace(request(n, most=8, temperature=5.0), choices=Choices.of(ALIKE, whole=True))
        for n in range(40)
    ]
    chances = dict(zip(ALIKE, chances_of(model, (1, 2, 3), ALIKE, 5.0), strict=True))
    results = ask(engine, [*requests, request(99, None, most=5)])
    free = ask(EmbeddedEngine(model, tokenizer, stop_token_ids=[]), [request(99, None, most=5)])
    assert results.pop("s99").token_ids == free["s99"].token_ids
    for result in results.values():
        ids = result.token_ids
        assert result.logprobs[0] == pytest.approx(np.log(chances[ids]), abs=1e-4)
        assert not any(result.logprobs[1:]) and result.finish_reason == "stop"
        assert result.supports.fits(np.array(ids)) and result.supports.whole
        assert result.supports.forced.tolist() == list(range(1, len(ids)))
        assert not result.supports.fits(np.array([*ids[:-1], 1]))
    seen = Counter(result.token_ids for result in results.values())
    assert len(seen) > 2
    number = next(iter(results.values()))
    context = (1, 2, 3, *number.token_ids, 11)
    turn = replace(requests[0], session_id=number.session_id, token_ids=context)
    (again,) = ask(engine, [turn]).values()
    expected = dict(zip(ALIKE, chances_of(model, context, ALIKE, 5.0), strict=True))
    assert again.logprobs[0] == pytest.approx(np.log(expected[again.token_ids]), abs=1e-4)
    greedy = replace(requests[0], session_id="g", sampling=SamplingParams(8, temperature=0))
    chances = chances_of(model, (1, 2, 3), ALIKE)
    assert ask(engine, [greedy])["g"].token_ids == ALIKE[chances.argmax()]


def test_whole_answers_that_no_engine_can_choose(tokenizer):
    whole = Choices.of(ALIKE, whole=True)
    plain, cached = PlainEngine(build_model(), tokenizer), EmbeddedEngine(build_model(), tokenizer)
    for engine, one, words in (
        (plain, request(), "PlainEngine does not choose among whole answers"),
        (cached, request(top_k=3), "top_p and top_k cut no whole answers"),
        (cached, request(context=[1] * 510, most=1), "leaves no room in the model's"),
    ):
        (result,) = ask(engine, [replace(one, choices=whole)]).values()
        assert words in result.error
    only = replace(request(), choices=Choices.of(ALIKE[:1], whole=True))
    assert ask(cached, [only])["s0"].supports.sizes.tolist() == [1, 1, 1]


@given(st.sets(st.lists(st.integers(0, 3), max_size=5).map(tuple), min_size=1))
def test_a_trie_has_each_beginning_once(made):
    ended = sorted((*answer, 9) for answer in made)
    choices = Choices.of(ended, whole=True)
    trie = trie_of(choices)
    paths = [[trie.tokens[k] for k in path if k >= 0] for path in trie.paths.tolist()]
    assert [tuple(path) for path in paths] == ended
    begun = {answer[:k] for answer in ended for k in range(1, len(answer) + 1)}
    assert len(trie.tokens) == len(begun)
    assert len(trie.inner) == len(begun) - len(ended)
    assert trie.totals(np.ones(len(begun))).tolist() == [len(answer) for answer in ended]
    assert Choices.of_support(choices.support).table.tolist() == choices.table.tolist()
    seen = trie.seen_by(trie.inner)
    assert seen.sum(1).tolist() == (trie.depths[trie.inner] + 1).tolist()


def test_a_choice_that_the_model_cannot_say_is_an_error(tokenizer):
    engine = EmbeddedEngine(build_model(), tokenizer)
    result = ask(engine, [request(answers=[(3, 10**6)])])["s0"]
    assert result.finish_reason == "error" and "1000000" in result.error


@pytest.mark.parametrize("answers", [[], [()], [(1,), (1, 2)], [(5,), (1, 2), (1, 2, 3)]])
def test_choices_that_none_can_make(answers):
    with pytest.raises(ValueError, match=r"choose from|begins another"):
        Choices.of(answers)


@given(st.sets(st.lists(st.integers(0, 3), max_size=5).map(tuple), min_size=1))
def test_a_walk_takes_each_choice_and_nothing_else(answers):
    ended = {(*answer, 9) for answer in answers}
    choices = pickle.loads(pickle.dumps(Choices.of(ended)))
    found, waiting = set(), [()]
    while waiting:
        begun = waiting.pop()
        walk = Walk(choices)
        complete = [walk.take(token) for token in begun]
        if complete[-1:] == [True]:
            found.add(begun)
        waiting += [(*begun, token) for token in walk.allowed.tolist()]
    assert found == ended
    walk = Walk(choices)
    assert not walk.forced() or len({answer[0] for answer in ended}) == 1


@given(st.dictionaries(st.integers(0, 30), st.sets(st.integers(0, 50), min_size=1)), st.data())
def test_supports_are_cut_and_joined(sets, data):
    pairs = [(place, sorted(sets[place])) for place in sorted(sets)]
    supports = Supports.of(pairs)
    assert [(place, ids.tolist()) for place, ids in supports] == pairs
    at = data.draw(st.integers(0, 31))
    first, second = supports.between(0, at), supports.between(at, 31)
    assert joined_supports([first, second.between(0, 31, at)]) == supports
    assert supports.forced.tolist() == [place for place, ids in pairs if len(ids) == 1]
    ids = np.array([min(sets.get(k, {7})) for k in range(31)])
    assert supports.fits(ids)
    assert not sets or not supports.fits(ids + 100)
