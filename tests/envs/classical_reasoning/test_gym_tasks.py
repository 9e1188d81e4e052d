"""Every reasoning-gym task is sorted, and none of the package's scorers that we call evaluates."""

import ast
import inspect
import textwrap

import pytest

from agentsgym.envs import ConfigError, make
from agentsgym.envs.classical_reasoning import gym_tasks
from agentsgym.envs.classical_reasoning.gym_tasks import EVALUATING, PLAIN, TEXT

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


def test_every_installed_task_is_reviewed_once():
    tables = [set(TEXT), set(PLAIN), set(EVALUATING), {"composite"}]
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
        ("composite", "mixes other tasks"),
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
def test_our_scorers_accept_the_packages_own_answers(task):
    data = gym.create_dataset(task, seed=5, size=4)
    for index in range(4):
        right = data[index]["answer"]
        assert not right or len(right) > 500 or TEXT[task](right, right)


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
    ],
)
def test_what_our_scorers_of_texts_accept(scorer, given, right, expected):
    assert getattr(gym_tasks, scorer)(given, right) is expected
