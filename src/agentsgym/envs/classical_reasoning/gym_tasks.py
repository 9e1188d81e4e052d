"""reasoning-gym's tasks: which are offered, and how their answers are compared.

Some of the package's scorers pass an answer to `eval`, to `sympy.parse_expr` or to `Fraction`. A
task is offered if an answer can be compared instead: by our function of that name with the right
answer (`TEXT`), or by the package's scorer if it only compares texts, numbers and JSON (`PLAIN`; a
test searches the code that it calls for evaluators). All others are refused.
"""

import hashlib
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NoReturn


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


_SAME_TEXT = (
    "acre aiw arc_1d base_conversion basic_arithmetic bf binary_alternation binary_matrix "
    "caesar_cipher count_bits count_primes course_schedule gcd isomorphic_strings "
    "largest_island lcm leg_counting letter_counting list_functions mahjong_puzzle maze "
    "modulo_grid number_filtering number_sequence ransom_note rotate_matrix rotten_oranges "
    "simple_equations simple_geometry spiral_matrix string_insertion string_manipulation "
    "string_splitting string_synthesis syllogism word_sequence_reversal"
)

TEXT: dict[str, Callable[[str, str], bool]] = {
    **dict.fromkeys(_SAME_TEXT.split(), same_text),
    "bitwise_arithmetic": same_integer,
    "calendar_arithmetic": same_text_or_integer,
    "chain_sum": same_decimal,
    "codeio": same_text_or_json,
    "figlet_font": same_letters,
    "game_of_life_halting": same_letters,
    "letter_jumble": same_letters,
    "number_sorting": same_numbers,
    "products": same_decimal,
    "spell_backward": same_letters,
    "word_sorting": same_words,
}

_PLAIN = (
    "ab advanced_geometry arc_agi boxnet circuit_logic color_cube_rotation cryptarithm "
    "decimal_arithmetic decimal_chain_sum dice emoji_mystery family_relationships "
    "fraction_simplification futoshiki game_of_life graph_color group_anagrams gsm_symbolic jugs "
    "kakurasu knight_swap knights_knaves manipulate_matrix mini_sudoku needle_haystack "
    "number_format palindrome_generation palindrome_partitioning path_star polynomial_equations "
    "pool_matrix prime_factorization propositional_logic quantum_lock rearc "
    "rectangle_count self_reference sentence_reordering shortest_path sokoban sudoku survo "
    "time_intervals tower_of_hanoi tsumego word_ladder zebra_puzzles"
)
PLAIN = frozenset(_PLAIN.split())

_EVALUATING = (
    "coin_flip complex_arithmetic countdown intermediate_integration n_queens "
    "polynomial_multiplication power_function puzzle24 rubiks_cube rush_hour simple_integration"
)
EVALUATING = frozenset(_EVALUATING.split())
"""Tasks that are not offered because their answers are evaluated rather than compared."""


MAX_SIZE = 200_000
"""The largest data set from which an entry is generated again: some tasks draw numbers for every
entry when the data set is made."""
MAX_SEED = 2**32 - 1


def refusal(task: str) -> str | None:
    """Why a task's questions are not offered; None if they are."""
    if task in TEXT or task in PLAIN:
        return None
    if task in EVALUATING:
        return "its scorer evaluates the answer"
    if task == "composite":
        return "it mixes other tasks; name those tasks instead"
    return "its scorer has not been reviewed, so it might evaluate the answer"


def digest(question: str) -> str:
    """A hash that is equal for equal questions."""
    return hashlib.blake2b(question.encode("utf-8", "replace"), digest_size=16).hexdigest()


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
