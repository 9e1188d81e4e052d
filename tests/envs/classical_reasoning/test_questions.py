"""Files of questions: what is read, and that bad rows are refused by number."""

import json

import pytest

from agentsgym.envs.classical_reasoning.answers import kind_of
from agentsgym.envs.classical_reasoning.questions import (
    BadQuestions,
    KnownQuestion,
    load_questions,
    shipped_questions,
)


def write(path, *lines):
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return path


def test_rows_with_texts_numbers_lists_and_kinds(tmp_path):
    path = write(
        tmp_path / "q.jsonl",
        {"question": " What is 1 + 1? ", "answer": 2},
        "",
        {"question": "Which fruit?", "answer": ["apple", "pear"], "kind": "exact"},
    )
    questions = load_questions(path)
    assert questions[0] == KnownQuestion(question="What is 1 + 1?", answer=["2"])
    assert questions[1] == KnownQuestion(
        question="Which fruit?", answer=["apple", "pear"], kind="exact"
    )
    assert [KnownQuestion.from_task(q.as_task()) for q in questions] == questions


def test_bad_rows_are_all_named_by_number(tmp_path):
    path = write(
        tmp_path / "q.jsonl",
        {"question": "fine?", "answer": "yes"},
        "{not json",
        {"question": "no answer"},
        {"answer": "no question"},
        ["a", "list"],
        {"question": "q", "answer": "a", "kind": "taste"},
        {"question": "q2", "answer": "a", "level": 3},
        {"question": "Fine? ".strip(), "answer": "no"},
        {"question": "q3", "answer": True},
        {"question": "q4", "answer": []},
    )
    with pytest.raises(BadQuestions) as refused:
        load_questions(path)
    message = str(refused.value)
    assert "9 bad rows" in message
    for number in range(2, 11):
        assert f"row {number}: " in message
    assert "row 1: " not in message
    assert "row 2: is not JSON" in message
    assert "row 8: repeats the question of row 1" in message
    assert "row 7: unknown key 'level'" in message


def test_a_long_report_is_cut_and_an_empty_file_refused(tmp_path):
    with pytest.raises(BadQuestions, match=r"50 bad rows(.|\n)*and 30 more"):
        load_questions(write(tmp_path / "q.jsonl", *(["nope"] * 50)))
    with pytest.raises(BadQuestions, match="contains no questions"):
        load_questions(write(tmp_path / "e.jsonl", ""))
    with pytest.raises(FileNotFoundError):
        load_questions(tmp_path / "none.jsonl")


def test_the_shipped_questions():
    questions = shipped_questions()
    kinds = [kind_of(q.question, q.answer[0]) for q in questions]
    assert len(questions) >= 60
    assert set(kinds) == {"number", "exact", "choice"}
    letters = [q.answer[0] for q, kind in zip(questions, kinds, strict=True) if kind == "choice"]
    assert max(letters.count(letter) for letter in letters) <= len(letters) / 2
