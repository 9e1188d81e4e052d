"""Every reasoning-gym task is sorted, and none of the package's scorers that we call evaluates."""

import ast
import inspect
import textwrap

import pytest

from agentsgym.envs import ConfigError, make
from agentsgym.envs.classical_reasoning import gym_tasks
from agentsgym.envs.classical_reasoning.gym_scorers import ENTRY_SCORERS, TEXT_SCORERS
from agentsgym.envs.classical_reasoning.gym_tasks import ENTRY, GRAMMAR, PLAIN, REFUSED, TEXT

gym = pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")

EVALUATORS = {"eval", "exec", "compile", "__import__", "parse_expr", "sympify", "S", "Fraction"}
EVALUATORS |= {"lambdify", "literal_eval", "run", "Popen", "system", "import_module", "latex2sympy"}


def package_class(task):
    return gym.factory.DATASETS[task][0]


def calls_of(function):
    """The names that a function's code calls, and those that it refers to."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    called, named = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called.add(getattr(node.func, "id", getattr(node.func, "attr", None)))
        if isinstance(node, ast.Name | ast.Attribute):
            named.add(getattr(node, "id", getattr(node, "attr", None)))
    return called, named


def reached(owner):
    """All functions of the package that a class's `score_answer` can reach, itself first."""
    left, seen = [owner.score_answer], {}
    while left:
        function = inspect.unwrap(left.pop())
        if function in seen or function.__code__.co_filename == "<string>":  # a dataclass's own
            continue
        called, named = calls_of(function)
        seen[function] = called
        for name in named:
            target = getattr(owner, name, None) or function.__globals__.get(name)
            if inspect.isclass(target):
                left += [f for f in vars(target).values() if inspect.isfunction(f)]
            elif inspect.isfunction(target):
                left.append(target)
        left = [f for f in left if f.__module__.startswith("reasoning_gym")]
    return seen


def evaluators_of(owner):
    return {
        (function.__qualname__, name)
        for function, called in reached(owner).items()
        for name in called & EVALUATORS
        if not inspect.isfunction(own := function.__globals__.get(name))
        or not own.__module__.startswith("reasoning_gym")
    }


def test_every_installed_task_is_sorted_once():
    tables = [set(TEXT), set(ENTRY), set(GRAMMAR), set(PLAIN), set(REFUSED)]
    assert set().union(*tables) == set(gym.factory.DATASETS)
    assert sum(map(len, tables)) == len(gym.factory.DATASETS)
    assert set(TEXT.values()) <= set(TEXT_SCORERS) and set(ENTRY.values()) <= set(ENTRY_SCORERS)


@pytest.mark.parametrize("task", sorted(PLAIN))
def test_no_plain_scorer_reaches_an_evaluator(task):
    assert evaluators_of(package_class(task)) == set()


@pytest.mark.parametrize("task", sorted(GRAMMAR))
def test_behind_a_grammar_only_fractions_are_made_of_an_answer(task):
    assert {name for _, name in evaluators_of(package_class(task))} <= {"Fraction"}


def test_the_search_finds_the_evaluators_that_are_known():
    known = "countdown puzzle24 string_insertion binary_matrix spiral_matrix n_queens "
    known += "simple_integration intermediate_integration polynomial_multiplication coin_flip "
    known += "bitwise_arithmetic number_sorting"
    assert [task for task in known.split() if not evaluators_of(package_class(task))] == []


def test_a_task_that_nobody_has_sorted_is_refused_by_name(monkeypatch):
    new = {**gym.factory.DATASETS, "brand_new": gym.factory.DATASETS["chain_sum"]}
    monkeypatch.setattr(gym.factory, "DATASETS", new)
    config = {"source": "reasoning_gym", "gym_tasks": ["brand_new"]}
    with pytest.raises(
        ConfigError, match="'brand_new', which is not supported: its scorer has not been reviewed"
    ):
        make("ClassicalReasoning", None, config).get_train_dataset()
    with pytest.raises(ConfigError, match="'composite', which is not supported: it mixes"):
        make("ClassicalReasoning", None, {**config, "gym_tasks": ["composite"]}).get_train_dataset()


@pytest.mark.parametrize("task", sorted({**TEXT, **ENTRY, **GRAMMAR}))
def test_our_scorers_take_the_packages_own_answers(task):
    data = gym.create_dataset(task, seed=5, size=4)
    for index in range(4):
        entry = data[index]
        right = entry["answer"] or entry["metadata"].get("example_correct_answer")
        if not right or len(right) > 500 or "Integral" in right:
            continue
        if task in TEXT:
            assert TEXT_SCORERS[TEXT[task]](right, right)
        elif task in ENTRY:
            assert gym_tasks.may_be_scored(task, right), right
            assert ENTRY_SCORERS[ENTRY[task]](right, entry), right
        else:
            assert gym_tasks.may_be_scored(task, right) and data.score_answer(right, entry) >= 1.0


@pytest.mark.parametrize(
    ("scorer", "given", "right", "expected"),
    [
        ("same_text", "a  \nb", "a\nb", True),
        ("same_text", "['a','b']", "ab", False),
        ("same_letters", "TRUE", "true", True),
        ("same_letters", "anything", "False", False),
        ("same_integer", "0xFF", "255", True),
        ("same_integer", "1,024", "0x400", True),
        ("same_integer", "9**9", "387420489", False),
        ("same_integer", "1_0", "10", False),
        ("same_decimal", "+01,000.00", "1000", True),
        ("same_decimal", "1000.5", "1000", False),
        ("same_decimal", "NaN", "1000", False),
        ("same_decimal", "1e3", "1000", False),
        ("same_text_or_integer", " 07", "7", True),
        ("same_text_or_integer", "friday", "Friday", True),
        ("same_text_or_json", '{"b": 1, "a": 2}', '{"a": 2, "b": 1}', True),
        ("same_text_or_json", '{"a": NaN}', '{"a": 1}', False),
        ("same_text_or_json", "[" * 499, "[]", False),
        ("same_numbers", "[1.0, '2']", "['1', '2.0']", True),
        ("same_numbers", "[NaN, NaN]", "['1', '2']", False),
        ("same_numbers", "[1.5, 2]", "['1', '2']", False),
        ("same_words", "a, b,c", "a, b, c", True),
        ("same_words", "a, b, c, junk", "a, b, c", False),
        ("same_polynomial", "3*x + 2*x**2", "2*x**2 + 3*x", True),
        ("same_polynomial", "x**2 - x**2 + 7*y*x", "7*x*y", True),
        ("same_polynomial", "-x + 4", "4 - x", True),
        ("same_polynomial", "(x+1)*(x+2)", "x**2 + 3*x + 2", False),
        ("same_polynomial", "x**9**9", "x**81", False),
        ("same_polynomial", "+-x", "x", False),
    ],
)
def test_what_our_scorers_of_texts_accept(scorer, given, right, expected):
    assert TEXT_SCORERS[scorer](given, right) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("(10 - 6) * (8 - 5) * 2", False),
        ("10*(8 - 5) - 6", True),
        ("10*(8-5)-6+0", False),
        ("24", False),
        ("10*(8-5)-6 # comment", False),
        ("int('24')", False),
        ("10*(8-5)-6/1", False),
    ],
)
def test_an_expression_must_use_the_numbers_and_reach_the_target(given, expected):
    entry = {"metadata": {"numbers": [8, 5, 10, 6], "target": 24}}
    assert ENTRY_SCORERS["puzzle24"](given, entry) is expected
    assert ENTRY_SCORERS["countdown"](given, entry) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("x**3 + C", True),
        ("x^3", True),
        ("x*x*x + 5 + C", True),
        ("x**3 + sin(x)**2 + cos(x)**2", True),
        ("exp(3*log(x))", True),
        ("x**2", False),
        ("Integral(3*x**2, x)", False),
        ("9**9**9**9", False),
        ("((9**50)**50)**50", False),
        ("x**3 + 1/0", False),
        ("x.diff(x)", False),
        ("(" * 200, False),
        ("1" * 400, False),
    ],
)
def test_antiderivatives_are_read_by_a_grammar(given, expected):
    entry = {"metadata": {"integrand": "3*x**2", "variable": "x"}}
    assert ENTRY_SCORERS["antiderivative"](given, entry) is expected
