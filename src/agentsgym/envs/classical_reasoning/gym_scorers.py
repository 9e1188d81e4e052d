"""Our own scorers for reasoning-gym tasks; `gym_tasks` assigns them to tasks.

Scorers of *text* take the given answer and the right one, scorers of *entry* the given answer and
the entry that the package generated. They only compare; no answer is evaluated as code.
"""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NoReturn

from agentsgym.envs.classical_reasoning.arithmetic import NotArithmetic, calculate


def same_text(given: str, right: str) -> bool:
    """Equal except for white space at the ends of lines."""
    return _lines(given) == _lines(right)


def same_letters(given: str, right: str) -> bool:
    """Equal except for case and white space at the ends."""
    return given.strip().casefold() == right.strip().casefold()


def same_words(given: str, right: str) -> bool:
    """The same words in the same order, separated by commas."""
    return _parts(given) == _parts(right)


def same_integer(given: str, right: str) -> bool:
    """The same whole number, decimal or with the prefix 0x, 0o or 0b."""
    value = _integer(given)
    return value is not None and value == _integer(right)


def same_decimal(given: str, right: str) -> bool:
    """The same decimal number, ignoring commas and leading and trailing zeros."""
    value = _decimal(given)
    return value is not None and value == _decimal(right)


def same_text_or_integer(given: str, right: str) -> bool:
    """Equal texts, or equal decimal whole numbers."""
    return same_letters(given, right) or same_integer(given, right)


def same_text_or_json(given: str, right: str) -> bool:
    """Equal texts, or texts of equal JSON."""
    if same_text(given, right):
        return True
    try:
        return bool(_json(given) == _json(right))
    except (ValueError, RecursionError):
        return False


def same_numbers(given: str, right: str) -> bool:
    """Lists, in brackets or not, of the same numbers in the same order."""
    ours, theirs = _numbers(given), _numbers(right)
    return bool(ours) and ours == theirs


def same_polynomial(given: str, right: str) -> bool:
    """Sums of the same terms. Brackets are not expanded, because that was the question."""
    ours = _polynomial(given)
    return ours is not None and ours == _polynomial(right)


def countdown(given: str, entry: Mapping[str, Any]) -> bool:
    """An expression that uses exactly the given numbers and whose value is the target."""
    return _makes(given, entry["metadata"]["numbers"], entry["metadata"]["target"])


def puzzle24(given: str, entry: Mapping[str, Any]) -> bool:
    """An expression that uses exactly the given numbers and whose value is 24."""
    return _makes(given, entry["metadata"]["numbers"], 24)


def one_of_the_boards(given: str, entry: Mapping[str, Any]) -> bool:
    """One of the solved boards."""
    return any(same_text(given, board) for board in entry["metadata"]["valid_answers"])


def antiderivative(given: str, entry: Mapping[str, Any]) -> bool:
    """An expression whose derivative is the integrand. Needs sympy."""
    from agentsgym.envs.classical_reasoning.symbolic import is_antiderivative

    metadata = entry["metadata"]
    return is_antiderivative(given, metadata["integrand"], metadata["variable"])


TEXT_SCORERS: dict[str, Callable[[str, str], bool]] = {
    scorer.__name__: scorer
    for scorer in (
        same_text,
        same_letters,
        same_words,
        same_integer,
        same_decimal,
        same_text_or_integer,
        same_text_or_json,
        same_numbers,
        same_polynomial,
    )
}
ENTRY_SCORERS: dict[str, Callable[[str, Mapping[str, Any]], bool]] = {
    scorer.__name__: scorer for scorer in (countdown, puzzle24, one_of_the_boards, antiderivative)
}


def _makes(given: str, numbers: list[int], target: int) -> bool:
    try:
        value, used = calculate(given)
    except NotArithmetic:
        return False
    return value == target and sorted(used) == sorted(numbers)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _integer(text: str) -> int | None:
    plain = text.strip().replace(",", "")
    if not re.fullmatch(r"[-+]?(\d{1,100}|0[xob][0-9a-f]{1,100})", plain, re.I | re.A):
        return None
    try:
        return int(plain, 0 if plain.lstrip("+-")[1:2].lower() in ("x", "o", "b") else 10)
    except ValueError:
        return None


def _decimal(text: str) -> Decimal | None:
    plain = text.strip().replace(",", "")
    return Decimal(plain) if re.fullmatch(r"[-+]?\d{1,100}(\.\d{0,100})?", plain, re.A) else None


def _json(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _numbers(text: str) -> list[float] | None:
    inside = text.strip().removeprefix("[").removesuffix("]")
    items = [item.strip().strip("'\"").strip() for item in inside.split(",")]
    if not all(re.fullmatch(r"[-+]?\d{1,15}(\.\d{0,15})?", item, re.A) for item in items):
        return None
    return [float(item) for item in items]


def _polynomial(text: str) -> dict[tuple[str, ...], int] | None:
    """Coefficients by monomial; None if the text is not a sum of terms like `-3*x**2*y`."""
    terms: dict[tuple[str, ...], int] = {}
    plain = re.sub(r"\s", "", text)
    if not plain.isascii() or not plain:
        return None
    for term in re.findall(r"[-+]?[^-+]*", plain[1:] if plain[0] == "+" else plain)[:-1]:
        read = _term(term)
        if read is None:
            return None
        monomial, coefficient = read
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return {monomial: number for monomial, number in terms.items() if number}


def _term(term: str) -> tuple[tuple[str, ...], int] | None:
    coefficient = -1 if term[0] == "-" else 1
    powers: list[str] = []
    for factor in term.lstrip("+-").replace("**", "^").split("*"):
        match = re.fullmatch(r"(\d{1,30})|([A-Za-z])(?:\^(\d{1,2}))?", factor)
        if match is None:
            return None
        if match[1]:
            coefficient *= int(match[1])
        else:
            powers += [match[2]] * int(match[3] or 1)
    return tuple(sorted(powers)), coefficient
