"""Whether an answer is right. Pure functions that take time linear in the text."""

import math
import re
import unicodedata
from collections.abc import Iterator

NUMBER = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
_FRACTION = re.compile(rf"({NUMBER.pattern})\s*/\s*({NUMBER.pattern})")
_CHOICE = re.compile(r"(?:option|choice|answer)?\s*\(?([A-Z])\)?(?:[.):,]\s*(.*))?", re.IGNORECASE)
_OPTIONS = re.compile(r"(?:^|\s)\(?([A-Z])[.)]\s", re.MULTILINE)
_ARTICLES = re.compile(r"^(?:the|a|an)\s+")
_LATEX = re.compile(r"\\[a-zA-Z]+|\$|[\^_]|[a-z]\s*[=<>]")


def kind_of(question: str, answer: str) -> str:
    """How answers to a question are compared, told by its right answer.

    A single letter that the question offers as an option is a choice; a number, also with a
    percent sign, a currency or thousands commas, is a number; LaTeX, powers and equations are
    mathematics; all else is compared as text.
    """
    if len(answer) == 1 and answer.upper() in _OPTIONS.findall(question):
        return "choice"
    if _plain_number(answer):
        return "number"
    return "math" if _LATEX.search(answer) else "exact"


def _plain_number(answer: str) -> bool:
    bare = answer.strip().strip("$€£%").strip()
    return bool(NUMBER.fullmatch(bare) or _FRACTION.fullmatch(bare))


def is_right(kind: str, right: str, given: str, tolerance: float) -> bool:
    """Whether `given` is the answer `right` under one of the kinds exact, choice and number."""
    if kind == "choice":
        return choice(given) is not None and choice(given) == choice(right)
    if kind == "number":
        return same_number(right, given, tolerance)
    return normalise(right) == normalise(given)


def normalise(text: str) -> str:
    """Case, width, white space, a leading article and punctuation at the ends taken away."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    plain = " ".join(plain.split()).strip(" .,;:!?'\"`$()[]{}")
    return _ARTICLES.sub("", plain).strip()


def choice(text: str) -> str | None:
    """The one option that an answer names: `B`, `(b)`, `B. the text`, `option B`; else None."""
    match = _CHOICE.fullmatch(text.strip().strip("$. "))
    if match is None:
        return None
    others = {letter.upper() for letter in _OPTIONS.findall(f" {match[2] or ''} ")}
    listed = re.fullmatch(r"[A-Z](?:[\s,.;)]+[A-Z])*[\s,.;)]*", (match[2] or "").upper())
    return None if others or listed else match[1].upper()


def same_number(right: str, given: str, tolerance: float) -> bool:
    """Whether both texts hold one number each and the numbers agree.

    `tolerance` is relative. A number with a percent sign also stands for its hundredth. An answer
    that holds several numbers is wrong, whichever they are.
    """
    return any(
        math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-12)
        for a in _readings(right)
        for b in _readings(given)
    )


def _readings(text: str) -> Iterator[float]:
    value = number(text)
    if value is None:
        return
    yield value
    if "%" in text or "percent" in text.casefold():
        yield value / 100


def number(text: str) -> float | None:
    """The only number in a text (a fraction is one), None where there is none or several."""
    plain = unicodedata.normalize("NFKC", text).replace("−", "-").replace("\\%", "%")
    if not plain.isascii():
        plain = plain.encode("ascii", "ignore").decode()
    fraction = _FRACTION.search(plain)
    rest = _FRACTION.sub("", plain, count=1) if fraction else NUMBER.sub("", plain, count=1)
    if NUMBER.search(rest):
        return None
    if fraction:
        below = _float(fraction[2])
        return _finite(_float(fraction[1]) / below) if below else None
    found = NUMBER.search(plain)
    return _finite(_float(found[0])) if found else None


def _float(digits: str) -> float:
    return float(digits.replace(",", ""))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
