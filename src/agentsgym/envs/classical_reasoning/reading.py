"""Reads the number in a text as a person would: ½, 2 1/2, 4², √9, 5!, –5, 1.5·10³."""

import math
import re
import unicodedata
from collections.abc import Callable

NUMBER = r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_SIGNED = rf"[-+]?{NUMBER}"
MAX_CHARACTERS = 1_000
"""Longer texts count as no number; reading time grows with the square of the length."""
MAX_FACTORIAL = 170
"""The largest number whose factorial fits into a float."""

_DASHES = dict.fromkeys(map(ord, "−–—‒‐‑﹣－"), "-")
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_RAISED = re.compile(r"(?<=[\d)])\s*([⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_UNIT = re.compile(r"[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_ONE_WAY = [
    (re.compile(r"(?<=\d)\s*(?=\\[dt]?frac|[¼-¾⅐-⅞])"), " "),
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"\1/\2"),
    (re.compile(r"\\sqrt\s*\{([^{}]*)\}|\bsqrt\s*\(([^()]*)\)"), r"√\1\2"),
    (re.compile(r"\^\s*\{([^{}]*)\}|\*\*"), r"^\1"),
    (re.compile(r"\\times|\\cdot|[×·∙⋅]"), "*"),
    (re.compile(r"\\([%$ ])"), r"\1"),
    (re.compile(r"\\[,;!:]|\{,\}"), ""),
]
_FORMS: list[tuple[str, Callable[..., float]]] = [
    (r"(?P<sign>[-+]?)(?P<a>\d+)\s+(?P<b>\d+)\s*/\s*(?P<c>\d+)", lambda a, b, c: a + b / c),
    (rf"(?P<sign>)(?P<a>{_SIGNED})\s*/\s*(?P<b>{_SIGNED})", lambda a, b: a / b),
    (
        rf"(?P<sign>[-+]?)(?P<a>{NUMBER})\s*[x*]\s*10\s*\^\s*(?P<b>[-+]?\d{{1,3}})",
        lambda a, b: a * 10.0**b,
    ),
    (rf"(?P<sign>[-+]?)(?P<a>{NUMBER})\s*\*?\s*√\s*\(?(?P<b>{NUMBER})\)?",
     lambda a, b: a * math.sqrt(b)),
    (rf"(?P<sign>[-+]?)√\s*\(?(?P<a>{NUMBER})\)?", math.sqrt),
    (rf"(?P<sign>[-+]?)(?P<a>{NUMBER})\s*\^\s*(?P<b>[-+]?\d{{1,3}})", lambda a, b: a**b),
    (rf"(?P<sign>[-+]?)(?P<a>{NUMBER})", lambda a: a),
]  # fmt: skip
_READ = [(re.compile(pattern), value) for pattern, value in _FORMS]
_SIMPLE = re.compile(r"\s*[-+]?\d{1,300}(?:\.\d{1,300})?\s*", re.ASCII)
"""Numbers that need no special reading; most numbers are like this."""
_FACTORIAL = re.compile(r"\s*(\d{1,3})\s*!\s*")


def number(text: str) -> float | None:
    """The only number in a text; None if it has none, several, or one that no float can hold.

    Commas are accepted only between groups of three digits. A factorial counts only if the text
    has nothing else: "It is 5!" means five.
    """
    if _SIMPLE.fullmatch(text):
        return float(text)
    plain = plain_text(text)
    if plain is None:
        return None
    factorial = _FACTORIAL.fullmatch(plain)
    if factorial:
        whole = int(factorial[1])
        return float(math.factorial(whole)) if whole <= MAX_FACTORIAL else None
    for pattern, value in _READ:
        found = pattern.search(plain)
        if found:
            rest = plain[: found.start()] + " " + plain[found.end() :]
            return None if re.search(r"[\d√^]", rest) else _value(found, value)
    return None


def is_number(text: str) -> bool:
    """Whether a text is a number and nothing else."""
    if _SIMPLE.fullmatch(text):
        return True
    plain = plain_text(text)
    return plain is not None and bool(
        _FACTORIAL.fullmatch(plain) or any(p.fullmatch(plain.strip()) for p, _ in _READ)
    )


def with_powers(text: str) -> str:
    """The text with raised digits written as `^2` and dashes as hyphens."""
    return _UNIT.sub(lambda run: "^" + run[0].translate(_POWERS), text.translate(_DASHES))


def plain_text(text: str) -> str | None:
    """The text in ASCII and √; None if that would lose mathematical symbols."""
    if len(text) > MAX_CHARACTERS:
        return None
    for pattern, replacement in _ONE_WAY:
        text = pattern.sub(replacement, text)
    text = text.translate(_DASHES)
    text = _RAISED.sub(lambda run: "^" + run[1].translate(_POWERS), text)
    text = _UNIT.sub("", text)
    text = unicodedata.normalize("NFKC", text).replace("⁄", "/").replace("≈", "")
    if any(_is_mathematics(letter) for letter in text):
        return None
    return "".join(letter for letter in text if letter.isascii() or letter == "√")


def _is_mathematics(letter: str) -> bool:
    foreign = not letter.isascii() and letter != "√"
    return foreign and (unicodedata.category(letter) == "Sm" or letter in "π‰")


def _value(found: re.Match[str], value: Callable[..., float]) -> float | None:
    parts = found.groupdict()
    sign = -1.0 if parts.pop("sign") == "-" else 1.0
    numbers = [float(part.replace(",", "")) for part in parts.values()]
    try:
        result = sign * value(*numbers)
    except (ArithmeticError, ValueError):
        return None
    return result if isinstance(result, float) and math.isfinite(result) else None
