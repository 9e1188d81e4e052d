"""Which of reasoning-gym's tasks are offered, and when their answers are right."""

import pytest

from agentsgym.envs import ConfigError, make
from agentsgym.envs.classical_reasoning.answers import same_answer
from agentsgym.envs.classical_reasoning.questions import OFFERED

gym = pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")


def test_every_offered_task_is_installed():
    assert set(gym.factory.DATASETS) >= OFFERED


@pytest.mark.parametrize("task", ["brand_new", "composite", "countdown", "jugs"])
def test_a_task_that_is_not_offered_is_refused_by_name(task, monkeypatch):
    new = {**gym.factory.DATASETS, "brand_new": gym.factory.DATASETS["chain_sum"]}
    monkeypatch.setattr(gym.factory, "DATASETS", new)
    config = {"source": "reasoning_gym", "gym_tasks": [task]}
    with pytest.raises(ConfigError, match=f"{task}.*has not been reviewed"):
        make("ClassicalReasoning", None, config).get_train_dataset()


@pytest.mark.parametrize("task", sorted(OFFERED))
def test_the_packages_own_answers_are_right(task):
    data = gym.create_dataset(task, seed=5, size=2)
    for index in range(2):
        right = str(data[index]["answer"])
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
        ("3/4", "$3/4$", True),
    ],
)
def test_what_is_the_same_answer(given, right, expected):
    assert same_answer(given, right) is expected
