"""reasoning-gym's tasks: which are offered, and how their answers are compared.

Some of the package's scorers pass an answer to `eval`, to `sympy.parse_expr` or to `Fraction`, so
none of them is called. A task is offered if it has one right answer, which `same_answer`
recognizes; all others are refused.
"""

import re
from decimal import Decimal

_NUMBER = re.compile(r"[-+]?\d{1,100}(\.\d{0,100})?", re.ASCII)
_GROUPED = re.compile(r"[-+]?\d{1,3}(,\d{3}){1,30}(\.\d{1,100})?", re.ASCII)


def same_answer(answer: str, right: str) -> bool:
    """Whether two texts are the same without case and white space at the ends of lines and items.

    Items of a list, in brackets and quotes or not, are separated by commas. Decimal numbers are
    compared by value; a number alone may have thousands separators.
    """
    if _items(answer) == _items(right):
        return True
    number = _number(right)
    grouped = answer.replace(",", "") if _GROUPED.fullmatch(answer.strip()) else answer
    return number is not None and _number(grouped) == number


def _items(text: str) -> list[list[Decimal | str]]:
    inside = text.strip(" \n\t$").casefold().removeprefix("[").removesuffix("]")
    lines = [
        [item.strip().strip("'\"") for item in line.split(",")] for line in inside.splitlines()
    ]
    return [[item if (n := _number(item)) is None else n for item in line] for line in lines]


def _number(text: str) -> Decimal | None:
    return Decimal(text.strip()) if _NUMBER.fullmatch(text.strip()) else None


_OFFERED = (
    "ab acre advanced_geometry aiw arc_1d arc_agi base_conversion basic_arithmetic bf "
    "binary_alternation binary_matrix bitwise_arithmetic caesar_cipher calendar_arithmetic "
    "chain_sum circuit_logic codeio color_cube_rotation count_bits count_primes course_schedule "
    "cryptarithm decimal_arithmetic decimal_chain_sum dice emoji_mystery family_relationships "
    "figlet_font fraction_simplification game_of_life game_of_life_halting gcd gsm_symbolic "
    "isomorphic_strings largest_island lcm leg_counting letter_counting letter_jumble "
    "list_functions mahjong_puzzle manipulate_matrix maze mini_sudoku modulo_grid "
    "needle_haystack number_filtering number_format number_sequence number_sorting path_star "
    "polynomial_equations pool_matrix prime_factorization products ransom_note rearc "
    "rectangle_count rotate_matrix rotten_oranges self_reference sentence_reordering "
    "simple_equations simple_geometry spell_backward spiral_matrix string_insertion "
    "string_manipulation string_splitting string_synthesis sudoku survo syllogism "
    "time_intervals tsumego word_sequence_reversal word_sorting zebra_puzzles"
)
OFFERED = frozenset(_OFFERED.split())

MAX_SEED = 2**32 - 1
REFUSAL = "several answers may be right, or it has not been reviewed"
