"""reasoning-gym's tasks: which are offered, and how their answers are compared.

Some of the package's scorers pass an answer to `eval`, to `sympy.parse_expr` or to `Fraction`. A
task is offered if an answer can be compared instead: with the right one by `same_answer` (`TEXT`),
or by the package's scorer if it only compares texts, numbers and JSON (`PLAIN`; a test searches the
code that it calls for evaluators). All others are refused.
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
    inside = text.strip().casefold().removeprefix("[").removesuffix("]")
    lines = [
        [item.strip().strip("'\"") for item in line.split(",")] for line in inside.splitlines()
    ]
    return [[item if (n := _number(item)) is None else n for item in line] for line in lines]


def _number(text: str) -> Decimal | None:
    return Decimal(text.strip()) if _NUMBER.fullmatch(text.strip()) else None


_TEXT = (
    "acre aiw arc_1d arc_agi base_conversion basic_arithmetic bf binary_alternation binary_matrix "
    "bitwise_arithmetic caesar_cipher calendar_arithmetic chain_sum codeio count_bits count_primes "
    "course_schedule figlet_font game_of_life_halting gcd isomorphic_strings largest_island lcm "
    "leg_counting letter_counting letter_jumble list_functions mahjong_puzzle maze modulo_grid "
    "number_filtering number_sequence number_sorting products ransom_note rearc rotate_matrix "
    "rotten_oranges simple_equations simple_geometry spell_backward spiral_matrix "
    "string_insertion string_manipulation string_splitting string_synthesis syllogism "
    "word_sequence_reversal word_sorting"
)
TEXT = frozenset(_TEXT.split())

_PLAIN = (
    "ab advanced_geometry boxnet circuit_logic color_cube_rotation cryptarithm "
    "decimal_arithmetic decimal_chain_sum dice emoji_mystery family_relationships "
    "fraction_simplification futoshiki game_of_life graph_color group_anagrams gsm_symbolic jugs "
    "kakurasu knight_swap knights_knaves manipulate_matrix mini_sudoku needle_haystack "
    "number_format palindrome_generation palindrome_partitioning path_star polynomial_equations "
    "pool_matrix prime_factorization propositional_logic quantum_lock "
    "rectangle_count self_reference sentence_reordering shortest_path sokoban sudoku survo "
    "time_intervals tower_of_hanoi tsumego word_ladder zebra_puzzles"
)
PLAIN = frozenset(_PLAIN.split())

MAX_SEED = 2**32 - 1
REFUSAL = "its scorer evaluates the answer, or has not been reviewed"


def is_offered(task: str) -> bool:
    """Whether a task's questions are offered."""
    return task in TEXT or task in PLAIN
