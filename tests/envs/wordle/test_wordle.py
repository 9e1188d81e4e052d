"""Wordle: the feedback by hand, the strong player against plain sums, rewards, metrics, tasks."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsgym import ScriptedAgent
from agentsgym.envs.wordle.env import EntropyPlayer, WordleEnv, WordSpace, all_words

feedback = WordSpace.feedback
texts = st.text("abcde", min_size=5, max_size=5)


@pytest.mark.parametrize(
    ("guess", "solution", "marks"),
    [
        ("crane", "crane", "GGGGG"),
        ("pouch", "sleet", "XXXXX"),
        ("crane", "react", "YYGXY"),
        # Repeated letters of the guess: as many have a mark as the solution has.
        ("speed", "abide", "XXYXY"),
        ("speed", "erase", "YXYYX"),
        ("speed", "steal", "GXGXX"),
        ("geese", "these", "XXGGG"),
        ("allow", "llama", "YGYXX"),
        # A letter in its place counts before those to its left.
        ("eerie", "apple", "XXXXG"),
        ("lolly", "hello", "XYGGX"),
        # Repeated letters of the solution: one in the guess is one mark.
        ("crane", "eerie", "XYXXG"),
    ],
)
def test_feedback_by_hand(guess, solution, marks):
    assert feedback(guess, solution) == marks


@given(texts, texts)
def test_marks_count_the_letters_that_both_words_have(guess, solution):
    marks = feedback(guess, solution)
    common = Counter(guess) & Counter(solution)
    assert marks.count("G") + marks.count("Y") == common.total()
    marked = Counter(g for g, mark in zip(guess, marks, strict=True) if mark != "X")
    assert marked == common
    assert [mark == "G" for mark in marks] == [g == s for g, s in zip(guess, solution, strict=True)]


@settings(deadline=None)
@given(st.lists(texts, min_size=1, max_size=8, unique=True))
def test_parts_are_what_feedback_says(words):
    space = WordSpace(tuple(words))
    for guess, word in enumerate(words):
        parts = space.parts(guess)
        assert sum(parts.values()) == space.everything
        assert all(parts[feedback(word, other)] >> i & 1 for i, other in enumerate(words))


def test_the_list_is_of_words_of_five_letters():
    words = all_words().codes
    assert len(words) == 555 and list(words) == sorted(set(words))
    assert all(len(word) == 5 and word.isascii() and word.islower() for word in words)


SMALL = WordSpace(("aaaaa", "aaaab", "aaabb", "ccccc"))


def test_entropies_by_hand():
    """ "aaaaa" tells all four apart (GGGGG, GGGGX, GGGXX, XXXXX), "ccccc" only itself."""
    player = EntropyPlayer(SMALL)
    apart, one = math.log2(4), -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
    assert player.entropies(0b1111).tolist() == pytest.approx([apart, apart, apart, one])
    assert player.entropies(0b0111)[3] == 0.0
    assert player.entropies(0b0100).tolist() == [0.0] * 4


def test_the_player_takes_what_tells_most_then_what_may_be_right():
    player = EntropyPlayer(SMALL)
    assert player.choose(0b1111, 0, 6) == 0
    assert player.choose(0b1110, 0, 6) == 1  # as telling as the impossible "aaaaa"
    assert player.choose(0b1000, 0, 6) == 3


def test_the_last_guess_that_counts_may_be_right():
    """ "bacch" tells the others apart and is none of them."""
    words = WordSpace(("batch", "catch", "hatch", "bacch"))
    player = EntropyPlayer(words, (0.0, 1.0))
    assert player.choose(0b0111, 0, 1) == player.choose(0b0111, 1, 2) == 3
    assert player.choose(0b0111, 1, 1) == 0


# -- the environment -----------------------------------------------------------------------------


def play(config, solution, *actions):
    env = WordleEnv(None, config)
    script = ScriptedAgent(actions) if actions else env.optimal_agent()
    rollout = env.run_trial([{"solution": solution}], script).rollouts[0]
    assert rollout.error is None
    return rollout.episodes[0]


def test_a_game_by_hand():
    episode = play({}, "speed", "My guess is CRANE.", "steel", "speed")
    said = [message["content"] for message in episode.messages[2::2]]
    assert said == ["X X X X Y", "G X G G X"]
    assert [step.reward for step in episode.steps] == [0.0, 0.0, 1.0]
    assert (episode.stop_reason, episode.win) == ("win", True)


def test_other_words_are_refused_and_cost_a_guess():
    episode = play({"error_allowance": 9}, "speed", "zzzzz", "steel or crane", "not steel", "steel")
    assert [step.malformed for step in episode.steps[:4]] == [True, True, True, False]
    assert episode.steps[1].observation == "That is not in the list of words."
    assert (len(episode.steps), episode.stop_reason, episode.reward) == (6, "guesses_used", 0.0)


def test_every_word_of_the_list_may_be_guessed_always():
    env = WordleEnv()
    state = env._initialize_episode("s", {"solution": "speed"})
    words = env.admissible_actions(state)
    for word in ("crane", "crane", "about"):
        state, _, _, info = env._step_episode("s", state, word)
        assert "malformed" not in info and env.admissible_actions(state) == words
    assert {*words} == {*all_words().codes} and len(words) == 555


def test_metrics_say_how_many_bits_a_guess_gained():
    episode = play({"information_reward": 0.1}, "speed", "crane", "crane", "speed")
    bits = [step.info["metrics"]["bits"] for step in episode.steps]
    words = [word for word in all_words().codes if feedback("crane", word) == "XXXXY"]
    assert bits == pytest.approx([math.log2(555 / len(words)), 0.0, math.log2(len(words))])
    assert [step.info["informing"] for step in episode.steps] == [True, False, True]
    paid = [0.1 * bits[0], 0.0, 1.0 + 0.1 * bits[2]]
    assert [step.reward for step in episode.steps] == pytest.approx(paid)
    assert episode.reward == pytest.approx(1.0 + 0.1 * math.log2(555))


def test_the_strong_player_finds_every_word_with_four_guesses_as_the_page_says():
    player = EntropyPlayer(all_words())
    found, pending = Counter(), [(all_words().everything, 1)]
    while pending:
        candidates, guess = pending.pop()
        chosen = player.choose(candidates, 0, 7 - guess)
        for answer, part in all_words().split(candidates, chosen):
            if answer == "GGGGG":
                found[guess] += 1
            else:
                pending.append((part, guess + 1))
    assert found == {1: 1, 2: 86, 3: 408, 4: 60}


def test_a_carried_word_is_guessed_at_once():
    env = WordleEnv(None, {"episodes_per_trial": 2, "free_shots": 1, "carry": "full"})
    task = {"solution": "speed"}
    first, second = env.reference_play(task)
    assert first.win and (second.win, second.steps) == (True, 1)
    (rollout,) = env.run_trial([task], env.optimal_agent()).rollouts
    prompts = [message["content"] for message in rollout.episodes[1].messages]
    assert any("Round 2 of 2, scored, same word. Find" in prompt for prompt in prompts)
