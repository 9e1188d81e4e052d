"""The greedy policy: it wins, it agrees with itself, and it is quick."""

import math
import time

import numpy as np
import pytest

from agentsgym.envs.twenty_questions.answerer import TableAnswerer
from agentsgym.envs.twenty_questions.best_play import BestPlay
from agentsgym.envs.twenty_questions.knowledge import load_table

QUICK = load_table("quickstart")


def test_quickstart_is_winnable_in_eight_steps() -> None:
    start = time.process_time()
    wins, steps = BestPlay(QUICK).expected(max_steps=8)
    assert time.process_time() - start < 0.5
    assert wins == 1.0
    assert math.log2(64) + 1 <= steps < 7.3


def test_two_hints_help() -> None:
    best, rng = BestPlay(QUICK), np.random.default_rng(0)
    steps = []
    for secret in QUICK.secrets:
        for j in rng.choice(32, size=(1, 2), replace=False):
            known = [(QUICK.attributes[k].key, bool(QUICK.row(secret)[k])) for k in j]
            won, used = best.play(secret, known, max_steps=8)
            assert won
            steps.append(used)
    assert np.mean(steps) < best.expected(max_steps=8)[1]


def test_default_table_is_nearly_always_won() -> None:
    start = time.process_time()
    wins, steps = BestPlay(load_table()).expected(max_steps=20)
    assert time.process_time() - start < 4.0
    assert wins > 0.98
    assert steps < 12


def test_play_and_expected_agree() -> None:
    best = BestPlay(QUICK)
    for max_steps in (1, 3, 6, 8):
        games = [best.play(secret, max_steps=max_steps) for secret in QUICK.secrets]
        wins, steps = best.expected(max_steps=max_steps)
        assert wins == pytest.approx(np.mean([won for won, _ in games]))
        assert steps == pytest.approx(np.mean([used for _, used in games]))


def test_next_action_plays_a_game_through_the_answerer() -> None:
    best, answerer = BestPlay(QUICK), TableAnswerer(QUICK)
    for secret in QUICK.secrets[:8]:
        known: list[tuple[str, bool | None]] = []
        for left in range(8, 0, -1):
            action = best.next_action(known, frozenset(), left)
            if action.startswith("["):
                break
            answer = answerer.answer(secret, action)
            assert answer.attribute is not None
            known.append((answer.attribute, answer.value))
        assert action == f"[{secret}]"


def test_consistent_wrong_and_contradictions() -> None:
    best = BestPlay(QUICK)
    foods = best.consistent([("food", True)])
    assert "apple" in foods and "chair" not in foods
    assert best.consistent([("food", True), ("food", False)]) == ()
    assert best.expected([("food", True), ("food", False)], 5) == (0.0, 0.0)
    first = best.next_action([("food", True)], frozenset(), 1)
    assert first == f"[{foods[0]}]"
    assert best.next_action([("food", True)], frozenset({foods[0]}), 1) == f"[{foods[1]}]"
    contradictory = [("food", True), ("food", False)]
    assert best.next_action(contradictory, frozenset(), 1).startswith("[")


def test_unknown_answers_are_outcomes_too() -> None:
    table = load_table()
    best = BestPlay(table)
    i, j = map(int, np.argwhere(table.values < 0)[0])
    assert table.secrets[i] in best.consistent([(table.attributes[j].key, None)])
