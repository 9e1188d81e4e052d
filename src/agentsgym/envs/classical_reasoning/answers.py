"""Finding the answer in an agent's text, and comparing it with the right one as text, choice,
number, or as reasoning-gym's tasks want it. Pure functions that evaluate nothing."""

import math
import re
import unicodedata
from collections.abc import Callable
from decimal import Decimal

from agentsgym.envs.action_text import spoken, without_fence, without_label

MAX_ACTION_CHARACTERS = 20_000
MAX_ANSWER_CHARACTERS = 500
_FENCE = re.compile(r"\s*`{3}\w*[.,!]?\s*")
_PHRASE = re.compile(r"(?:final answer|answer)\s*(?:is|:|=)\s*(?::\s*)?(.+)", re.IGNORECASE)

_PERCENT = re.compile(r"[%％]|\bper ?cent\b", re.IGNORECASE)
_CHOICE = re.compile(r"(?:option|choice|answer)?\s*\(?([A-Z])\)?(?:[.):,]\s*(.*))?", re.IGNORECASE)
_OPTIONS = re.compile(r"(?:^|\s)\(?([A-Z])[.)]\s", re.MULTILINE)
_ARTICLES = re.compile(r"^(?:the|a|an)\s+")
_LATEX = re.compile(r"\\[a-zA-Z]+|\$|[\^_]|[a-z]\s*[=<>]")

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
_DECIMAL = re.compile(r"[-+]?\d{1,100}(\.\d{0,100})?", re.ASCII)
_GROUPED = re.compile(r"[-+]?\d{1,3}(,\d{3}){1,30}(\.\d{1,100})?", re.ASCII)


# -- finding the answer ------------------------------------------------------------------------


def final_answer(action: str) -> str:
    """The final answer in an action, "" if there is none.

    Thoughts before `</think>` are ignored. The first of these that exists is the answer: the last
    `\\boxed{…}`, the last `<answer>…</answer>`, the text after the last "answer is" or "answer:",
    the last line without a leading "My guess is" and the like. A code fence around the text, and
    around the last lines, does not count.
    """
    if len(action) > MAX_ACTION_CHARACTERS:
        return ""
    text = without_fence(spoken(action))
    content = _boxed(text)
    if content is None:
        content = _tagged(text)
    if content is None:
        content = _last(_PHRASE.findall(text))
    if content is None:
        content = _last_line(text)
    answer = content.strip().strip("*").strip()
    usable = len(answer) <= MAX_ANSWER_CHARACTERS and "\x00" not in answer
    return answer if usable else ""


def _tagged(text: str) -> str | None:
    """The content of the last `<answer>…</answer>`; linear in the text's length."""
    folded = text.lower()
    end = folded.rfind("</answer>")
    start = folded.rfind("<answer>", 0, max(end, 0))
    return None if start < 0 or len(folded) != len(text) else text[start + len("<answer>") : end]


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not _FENCE.fullmatch(line)]
    return without_label(lines[-1].strip()) if lines else ""


def _last(matches: list[str]) -> str | None:
    return matches[-1] if matches else None


def _boxed(text: str) -> str | None:
    """The content of the last `\\boxed{…}`, with balanced braces."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    begin = start + len("\\boxed{")
    depth = 1
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position]
    return None


# -- comparing ---------------------------------------------------------------------------------


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


def is_right(kind: str, right: str, answer: str, tolerance: float) -> bool:
    """Whether `answer` agrees with `right`, for one of the kinds exact, choice and number."""
    if kind == "choice":
        return choice(answer) is not None and choice(answer) == choice(right)
    if kind == "number":
        return same_number(right, answer, tolerance)
    return normalize(right) == normalize(answer)


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


def same_number(right: str, answer: str, tolerance: float) -> bool:
    """Whether both texts contain exactly one number and the numbers agree.

    `tolerance` is relative. If one text has a percent sign, its number divided by 100 also counts.
    An answer with several numbers is always wrong.
    """
    one, other = number(right), number(answer)
    if one is None or other is None:
        return False
    if _is_percentage(right) == _is_percentage(answer):
        return _close(one, other, tolerance)
    share = one if _is_percentage(right) else other
    plain = other if _is_percentage(right) else one
    return _close(share, plain, tolerance) or _close(share / 100, plain, tolerance)


def _is_percentage(text: str) -> bool:
    return bool(_PERCENT.search(text))


def _close(one: float, other: float, tolerance: float) -> bool:
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-12)


def same_answer(answer: str, right: str) -> bool:
    """Whether two texts are the same without case and white space at the ends of lines and items.

    Items of a list, in brackets and quotes or not, are separated by commas. Decimal numbers are
    compared by value; a number alone may have thousands separators.
    """
    if _items(answer) == _items(right):
        return True
    number = _decimal(right)
    grouped = answer.replace(",", "") if _GROUPED.fullmatch(answer.strip()) else answer
    return number is not None and _decimal(grouped) == number


def _items(text: str) -> list[list[Decimal | str]]:
    inside = text.strip(" \n\t$").casefold().removeprefix("[").removesuffix("]")
    lines = [
        [item.strip().strip("'\"") for item in line.split(",")] for line in inside.splitlines()
    ]
    return [[item if (n := _decimal(item)) is None else n for item in line] for line in lines]


def _decimal(text: str) -> Decimal | None:
    return Decimal(text.strip()) if _DECIMAL.fullmatch(text.strip()) else None


# -- reading a number --------------------------------------------------------------------------


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
        match = pattern.search(plain)
        if match:
            rest = plain[: match.start()] + " " + plain[match.end() :]
            return None if re.search(r"[\d√^]", rest) else _value(match, value)
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


def _value(match: re.Match[str], value: Callable[..., float]) -> float | None:
    parts = match.groupdict()
    sign = -1.0 if parts.pop("sign") == "-" else 1.0
    numbers = [float(part.replace(",", "")) for part in parts.values()]
    try:
        result = sign * value(*numbers)
    except (ArithmeticError, ValueError):
        return None
    return result if isinstance(result, float) and math.isfinite(result) else None
