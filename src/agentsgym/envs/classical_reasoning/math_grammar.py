"""The texts that math-verify may read: LaTeX with a fixed list of commands and bounded numbers.

This is a filter before the parser, not a parser. It excludes sums, products, integrals and limits
(math-verify would compute them, not compare them), long numbers and towers of powers.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_CHARACTERS = 1_000
MAX_DEPTH = 25
MAX_POWERS = 40
MAX_POWER = 10_000
"""Upper limit for the product of an exponent's numbers."""

_CHARACTERS = re.compile(r"[A-Za-z0-9\s+\-*/=<>()\[\]{}|.,:;!^_\\&%$'°π√∞≤≥≠±×÷·−∪∩∈∅]*")
_LONG_NUMBER = re.compile(r"\d{31}")
_FACTORIAL = re.compile(r"(?:(?<!\d)\d{1,3}|(?<!\d)[a-z])\s*!(?!\s*!)", re.IGNORECASE)
_BINOMIAL = re.compile(r"binom(?:\s*\{(?![^{}]*\d{5})[^{}^]{1,12}\}){2}")
_PYTHON_POWER = re.compile(r"\*\*\s*(\d+|[A-Za-z]|\([^()]*\))")
_COMMAND = re.compile(r"\\([A-Za-z]+|.|$)", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+")
_NAMES = (
    "frac dfrac tfrac cfrac sqrt binom dbinom tbinom cdot times div pm mp ast star "
    "le leq leqslant ge geq geqslant ne neq lt gt equiv approx cong sim propto in notin subset "
    "subseteq cup cap setminus emptyset varnothing infty to rightarrow implies iff land lor neg "
    "mid vert lvert rvert lfloor rfloor lceil rceil left right big Big bigl bigr Bigl Bigr bigg "
    "sin cos tan sec csc cot arcsin arccos arctan sinh cosh tanh log ln lg exp gcd lcm min max "
    "det arg Re Im mod bmod pmod deg degree circ angle triangle prime parallel perp "
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "pi rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi "
    "Psi Omega mathbb mathrm mathbf mathcal mathit text textbf textrm mbox operatorname "
    "displaystyle overline underline bar vec hat ldots cdots dots quad qquad begin end boxed "
    "hline"
)
_COMMANDS = frozenset(_NAMES.split()) | set(" ,;:!{}|%$\\&_()[]")


class _Power(NamedTuple):
    """A `^`: the text before it, its exponent and the exponent's position."""

    base: str
    exponent: str
    start: int
    end: int


def readable(text: str) -> str | None:
    """The text in the form that math-verify should read; None if it may not read it."""
    plain = _PYTHON_POWER.sub(lambda found: f"^{{{found[1]}}}", text)
    if len(plain) > MAX_CHARACTERS or not _CHARACTERS.fullmatch(plain):
        return None
    if "__" in plain or _LONG_NUMBER.search(plain) or not _commands_known(plain):
        return None
    if plain.count("!") != len(_FACTORIAL.findall(plain)) + plain.count("\\!"):
        return None
    if plain.count("binom") != len(_BINOMIAL.findall(plain)):
        return None
    return plain if _depth(plain) <= MAX_DEPTH and _powers_bounded(plain) else None


def _commands_known(text: str) -> bool:
    return all(found[1] in _COMMANDS for found in _COMMAND.finditer(text))


def _depth(text: str) -> int:
    deepest = depth = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, abs(depth))
    return deepest


def _powers_bounded(text: str) -> bool:
    """Whether there is no power of a power of numbers and no exponent with large numbers."""
    powers = list(_powers(text))
    if len(powers) > MAX_POWERS:
        return False
    of_brackets = 1
    for number, power in enumerate(powers):
        size = _size(power.exponent)
        inside = any(other.start <= power.start < other.end for other in powers[:number])
        if size > MAX_POWER or (inside and not power.base.isalpha()):
            return False
        if not power.base.isalnum():
            of_brackets *= size
    return of_brackets <= MAX_POWER


def _powers(text: str) -> Iterator[_Power]:
    for found in re.finditer(r"(\S?)\s*\^\s*", text):
        start = found.end()
        end = _end_of_group(text, start)
        yield _Power(found[1], text[start:end], start, end)


def _end_of_group(text: str, start: int) -> int:
    if text[start : start + 1] not in ("{", "("):
        command = _COMMAND.match(text, start)
        return command.end() if command else start + 1
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] in "({") - (text[position] in ")}")
        if depth == 0:
            return position + 1
    return len(text)


def _size(exponent: str) -> int:
    return math.prod(max(1, _reach(number)) for number in _NUMBER.findall(exponent))


def _reach(number: str) -> int:
    """A number's value, or for a fraction how small it may be."""
    whole, point, decimals = number.partition(".")
    value = int(whole or 0)
    return max(value, 10 ** len(decimals)) if point and decimals.strip("0") else value
