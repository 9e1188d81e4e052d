"""Decides whether an answer is right: pure functions that compare texts and evaluate nothing."""

import math
import re
import unicodedata

from agentsgym.envs.classical_reasoning.reading import is_number, number, with_powers

_PERCENT = re.compile(r"[%％]|\bper ?cent\b", re.IGNORECASE)
_CHOICE = re.compile(r"(?:option|choice|answer)?\s*\(?([A-Z])\)?(?:[.):,]\s*(.*))?", re.IGNORECASE)
_OPTIONS = re.compile(r"(?:^|\s)\(?([A-Z])[.)]\s", re.MULTILINE)
_ARTICLES = re.compile(r"^(?:the|a|an)\s+")
_LATEX = re.compile(r"\\[a-zA-Z]+|\$|[\^_]|[a-z]\s*[=<>]")


def kind_of(question: str, answer: str) -> str:
    """How answers to a question are compared, decided by its right answer.

    A single letter that the question offers as an option is a choice; a number, also with a
    percent sign, a currency or thousands separators, is a number; LaTeX, powers and equations are
    mathematics; everything else is compared as text.
    """
    if len(answer) == 1 and answer.upper() in _OPTIONS.findall(question):
        return "choice"
    if _plain_number(answer):
        return "number"
    return "math" if _LATEX.search(answer) else "exact"


def _plain_number(answer: str) -> bool:
    bare = answer.strip().strip("$€£%").strip()
    return "\\" not in bare and "^" not in bare and is_number(bare)


def is_right(kind: str, right: str, given: str, tolerance: float) -> bool:
    """Whether `given` is the answer `right`, for one of the kinds exact, choice and number."""
    if kind == "choice":
        return choice(given) is not None and choice(given) == choice(right)
    if kind == "number":
        return same_number(right, given, tolerance)
    return normalize(right) == normalize(given)


def normalize(text: str) -> str:
    """The text without case, width, extra white space, a leading article and punctuation at the
    ends, unless nothing else would remain."""
    plain = " ".join(unicodedata.normalize("NFKC", with_powers(text)).casefold().split())
    bare = plain.strip(" .,;:!?'\"`$()[]{}")
    return _ARTICLES.sub("", bare).strip() or plain


def choice(text: str) -> str | None:
    """The one option in an answer: `B`, `(b)`, `B. the text`, `option B`; None otherwise."""
    match = _CHOICE.fullmatch(text.strip().strip("$. "))
    if match is None:
        return None
    others = {letter.upper() for letter in _OPTIONS.findall(f" {match[2] or ''} ")}
    listed = re.fullmatch(r"[A-Z](?:[\s,.;)]+[A-Z])*[\s,.;)]*", (match[2] or "").upper())
    return None if others or listed else match[1].upper()


def same_number(right: str, given: str, tolerance: float) -> bool:
    """Whether both texts contain exactly one number and the numbers agree.

    `tolerance` is relative. If one text has a percent sign, its number divided by 100 also counts.
    An answer with several numbers is always wrong.
    """
    one, other = number(right), number(given)
    if one is None or other is None:
        return False
    if _is_percentage(right) == _is_percentage(given):
        return _close(one, other, tolerance)
    share = one if _is_percentage(right) else other
    plain = other if _is_percentage(right) else one
    return _close(share, plain, tolerance) or _close(share / 100, plain, tolerance)


def same_value(right: str, given: str) -> bool | None:
    """Whether two texts that are just numbers are equal; None if they are not just numbers, so
    that mathematics must decide."""
    if "%" in right + given or not (is_number(right) and is_number(given)):
        return None
    one, other = number(right), number(given)
    if one is None or other is None:
        return None
    if math.isclose(one, other, rel_tol=1e-12):
        return True
    return None if math.isclose(one, other, rel_tol=0.01, abs_tol=1e-3) else False


def _is_percentage(text: str) -> bool:
    return bool(_PERCENT.search(text))


def _close(one: float, other: float, tolerance: float) -> bool:
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-12)
