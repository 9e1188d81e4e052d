"""How each reasoning-gym task is scored: a table of all tasks, each reviewed by hand.

Several of the package's scorers pass an answer to `eval`, to `sympy.parse_expr` or to `Fraction`,
and some give full marks to wrong answers (NaN, junk behind the answer, any text at all). So a task
is scored in one of four ways, and a task that was not reviewed is refused:

- *text*: by our function of that name in `gym_scorers`, which compares with the right answer;
- *entry*: by our function of that name, which compares with the entry that the package generates;
- *grammar*: by the package, if the whole answer matches the pattern given here, which limits the
  length of numbers and the number of repetitions;
- *plain*: by the package. Its scorer only compares texts, numbers and JSON; a test searches the
  code that it calls for evaluators.
"""

import hashlib
import re

_SAME_TEXT = (
    "acre aiw arc_1d base_conversion basic_arithmetic bf binary_alternation binary_matrix "
    "caesar_cipher count_bits count_primes course_schedule gcd isomorphic_strings "
    "largest_island lcm leg_counting letter_counting list_functions mahjong_puzzle maze "
    "modulo_grid number_filtering number_sequence ransom_note rotate_matrix rotten_oranges "
    "simple_equations simple_geometry spiral_matrix string_insertion string_manipulation "
    "string_splitting string_synthesis syllogism word_sequence_reversal"
)

TEXT = {
    **dict.fromkeys(_SAME_TEXT.split(), "same_text"),
    "bitwise_arithmetic": "same_integer",
    "calendar_arithmetic": "same_text_or_integer",
    "chain_sum": "same_decimal",
    "codeio": "same_text_or_json",
    "figlet_font": "same_letters",
    "game_of_life_halting": "same_letters",
    "letter_jumble": "same_letters",
    "number_sorting": "same_numbers",
    "polynomial_multiplication": "same_polynomial",
    "products": "same_decimal",
    "spell_backward": "same_letters",
    "word_sorting": "same_words",
}

ENTRY = {
    "countdown": "countdown",
    "intermediate_integration": "antiderivative",
    "n_queens": "one_of_the_boards",
    "puzzle24": "puzzle24",
    "simple_integration": "antiderivative",
}

GRAMMAR = {
    "coin_flip": r"\d{1,15}(\.\d{1,15})?(e[-+]?\d{1,2})?( ?/ ?\d{1,15})?",
    "complex_arithmetic": r"[-+() ij0-9.]{1,60}",
    "power_function": r"[-+]?\d{1,40}(\.\d{0,40})?(e[-+]?\d{1,3})?",
    "rubiks_cube": r"\d?[a-z]w?'?\d?( +\d?[a-z]w?'?\d?){0,249}",
    "rush_hour": r"[a-z][-+]\d([ ,]+[a-z][-+]\d){0,199}",
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

_FUNCTIONS = "(arc|a)?(sin|cos|tan)h?|sec|csc|cot|exp|log|ln|sqrt|abs|pi"
_WHOLE_NUMBERS = r"[-+*/() 0-9]+"
FORM = {
    "countdown": _WHOLE_NUMBERS,
    "puzzle24": _WHOLE_NUMBERS,
    **dict.fromkeys(
        ("intermediate_integration", "simple_integration"),
        rf"([-+*/^() 0-9.]|(?<![a-z])({_FUNCTIONS}|[a-z])(?![a-z]))+",
    ),
}
"""The general form of answers for our own scorers, which then apply stricter grammars."""

REFUSED = {
    "composite": "it mixes other tasks; name those tasks instead",
}

SYMBOLIC = frozenset({"intermediate_integration", "simple_integration"})
"""Tasks whose scorers use sympy expressions, which can take any time."""

MAX_SIZE = 200_000
"""The largest data set from which an entry is generated again: some tasks draw numbers for every
entry when the data set is made."""
MAX_SEED = 2**32 - 1


def refusal(task: str) -> str | None:
    """Why a task's questions are not supported; None if they are."""
    if task in REFUSED:
        return REFUSED[task]
    if task in TEXT or task in ENTRY or task in GRAMMAR or task in PLAIN:
        return None
    return "its scorer has not been reviewed, so it might run code from answers"


def digest(question: str) -> str:
    """A hash that is equal for equal questions."""
    return hashlib.blake2b(question.encode("utf-8", "replace"), digest_size=16).hexdigest()


def may_be_scored(task: str, given: str) -> bool:
    """Whether an answer has the form that the task's scorer needs; other answers are wrong."""
    pattern = GRAMMAR.get(task) or FORM.get(task)
    return pattern is None or re.fullmatch(pattern, given.strip(), re.IGNORECASE) is not None
