"""Every reasoning-gym task is sorted, and none of the package's scorers that we call evaluates."""

import ast
import inspect
import textwrap

import pytest

from agentsgym.envs import ConfigError, make
from agentsgym.envs.classical_reasoning.gym_tasks import PLAIN, TEXT, same_answer

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


NOT_OFFERED = set(
    "coin_flip complex_arithmetic composite countdown intermediate_integration n_queens "
    "polynomial_multiplication power_function puzzle24 rubiks_cube rush_hour "
    "simple_integration".split()
)


def test_every_installed_task_is_reviewed_once():
    tables = [set(TEXT), set(PLAIN), NOT_OFFERED]
    assert set().union(*tables) == set(gym.factory.DATASETS)
    assert sum(map(len, tables)) == len(gym.factory.DATASETS)


@pytest.mark.parametrize("task", sorted(PLAIN))
def test_no_plain_scorer_reaches_an_evaluator(task):
    assert evaluators_of(package_class(task)) == set()


def test_the_search_finds_the_evaluators_that_are_known():
    known = "countdown puzzle24 string_insertion binary_matrix spiral_matrix n_queens "
    known += "simple_integration intermediate_integration polynomial_multiplication coin_flip "
    known += "bitwise_arithmetic number_sorting"
    assert [task for task in known.split() if not evaluators_of(package_class(task))] == []


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("brand_new", "has not been reviewed"),
        ("composite", "has not been reviewed"),
        ("countdown", "evaluates the answer"),
    ],
)
def test_a_task_that_is_not_offered_is_refused_by_name(task, reason, monkeypatch):
    new = {**gym.factory.DATASETS, "brand_new": gym.factory.DATASETS["chain_sum"]}
    monkeypatch.setattr(gym.factory, "DATASETS", new)
    config = {"source": "reasoning_gym", "gym_tasks": [task]}
    with pytest.raises(ConfigError, match=f"{task}.*{reason}"):
        make("ClassicalReasoning", None, config).get_train_dataset()


@pytest.mark.parametrize("task", sorted(TEXT))
def test_the_packages_own_answers_are_right(task):
    data = gym.create_dataset(task, seed=5, size=4)
    for index in range(4):
        right = data[index]["answer"]
        assert same_answer(right, right) and not same_answer(f"{right} 1", right)


@pytest.mark.parametrize(
    ("given", "right", "expected"),
    [
        ("a  \nb", "a\nb", True),
        ("['a','b']", "ab", False),
        ("0xFF", "0xff", True),
        ("9**9", "387420489", False),
        ("1_0", "10", False),
        ("+01,000.00", "1000", True),
        ("NaN", "1000", False),
        ("1e3", "1000", False),
        ("12,5", "125", False),
        ('{"a": NaN}', '{"a": 1}', False),
        ("[" * 499, "[]", False),
        ("[1.0, '2']", "['1', '2.0']", True),
        ("1,2", "[1, 2]", True),
        ("a, b,c", "a, b, c", True),
    ],
)
def test_what_is_the_same_answer(given, right, expected):
    assert same_answer(given, right) is expected
