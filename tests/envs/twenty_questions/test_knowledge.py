"""The tables: their sizes, their truthfulness against labels written beforehand, and guessing."""

import csv
from pathlib import Path

import numpy as np

from agentsgym.envs.twenty_questions.answerer import CallableAnswerer, TableAnswerer
from agentsgym.envs.twenty_questions.knowledge import load_table
from agentsgym.envs.twenty_questions.words import matches, normalize

DATA = Path(__file__).parent
TRIPLES = list(csv.DictReader((DATA / "triples.tsv").open(), delimiter="\t"))


def test_default_table_is_large_and_has_the_everyday_words() -> None:
    table = load_table()
    assert len(table.secrets) >= 400
    assert len(set(table.secrets)) == len(table.secrets)
    assert {"apple", "banana", "chair", "clock"} <= set(table.secrets)
    assert len(table.attributes) >= 40
    assert table.values.shape == (len(table.secrets), len(table.attributes))
    assert set(np.unique(table.values)) <= {-1, 0, 1}
    assert (table.values < 0).mean() < 0.05


def test_quickstart_rows_are_distinct_and_known() -> None:
    table = load_table("quickstart")
    assert table.values.shape == (64, 32)
    assert len({row.tobytes() for row in table.values}) == 64
    assert (table.values >= 0).all()
    assert set(table.secrets) <= set(load_table().secrets)
    share = table.values.mean(axis=0)
    assert ((share > 0) & (share < 1)).all(), "an attribute that tells nothing"


def test_triples_agree() -> None:
    """Answers labelled from common sense before the table was written."""
    answerer = TableAnswerer(load_table())
    wrong, unparsed = [], 0
    for triple in TRIPLES:
        answer = answerer.answer(triple["secret"], triple["question"])
        unparsed += not answer.parsed
        if answer.text != triple["answer"]:
            wrong.append(f"{triple['secret']}: {triple['question']} {answer.text}")
    agreement = 1 - len(wrong) / len(TRIPLES)
    report = f"agreement {agreement:.1%}, unparsed {unparsed / len(TRIPLES):.1%}: {wrong}"
    assert len(TRIPLES) >= 300 and len({t["secret"] for t in TRIPLES}) >= 80
    assert 0.4 < np.mean([t["answer"] == "Yes" for t in TRIPLES]) < 0.6
    assert agreement >= 0.97, report


def test_specific_questions_are_rather_not_answered_than_answered_wrongly() -> None:
    """Questions about one secret's own details, as in the last steps of a game.

    Many are beyond the table; what counts is that those are not answered with a guess.
    """
    questions = list(csv.DictReader((DATA / "specific.tsv").open(), delimiter="\t"))
    answerer = TableAnswerer(load_table())
    given = [answerer.answer(row["secret"], row["question"]).text for row in questions]
    pairs = list(zip(given, (row["answer"] for row in questions), strict=True))
    answered = [(text, label) for text, label in pairs if text != "I don't know"]
    share = len(answered) / len(pairs)
    right = sum(text == label for text, label in answered) / len(answered)
    assert right >= 0.97, f"right {right:.1%} of the {share:.1%} answered"
    assert share >= 0.6, f"answered {share:.1%}"


def test_guesses_match_in_full_only() -> None:
    table = load_table()
    assert table.canonical("The Ice-Cream") == "ice cream"
    assert table.canonical(" a  COUCH ") == "sofa"
    assert matches("an apple", "apple") and matches("Fridge", "refrigerator", ["fridge"])
    exploits = [
        "", " ", "pineapple apple", "apple banana", "apple, banana, chair", "apple or banana",
        "apple;chair", "apple/chair", "app", "applesauce", "it is an apple", "a" * 10_000,
        "apple\nbanana", "apple|banana", "*", ".*", "apple " * 50, "the", "an",
    ]  # fmt: skip
    for guess in exploits:
        assert not matches(guess, "apple"), guess
        assert table.canonical(guess) is None, guess
    assert not matches("apple", "pineapple") and not matches("pineapple", "apple")


def test_synonyms_name_one_secret() -> None:
    for name in ("default", "hardcore"):
        table = load_table(name)
        owners: dict[str, str] = {}
        for secret in table.secrets:
            for other in table.names(secret):
                assert owners.setdefault(normalize(other), secret) == secret, other


def test_callable_answers_are_one_of_three() -> None:
    texts = {
        "Yes.": "Yes", "yes, it is an apple": "Yes", "NO!": "No", "No, it is the clock": "No",
        "I don't know": "I don't know", "": "I don't know", "The secret is apple": "I don't know",
        "Nothing": "I don't know", "yesterday": "I don't know",
    }  # fmt: skip
    for raw, expected in texts.items():
        answer = CallableAnswerer(lambda s, q, h, raw=raw: raw).answer("apple", "Is it red?", [])
        assert answer.text == expected and "apple" not in answer.text


def test_data_is_small_and_its_notice_is_there() -> None:
    import agentsgym.envs.twenty_questions.knowledge as module

    folder = Path(module.__file__).parent / "data"
    assert sum(f.stat().st_size for f in folder.glob("*.json")) < 400_000
    assert "Princeton University" in (folder / "WORDNET-LICENSE").read_text()
