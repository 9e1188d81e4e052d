"""`train.curriculum`: kinds of tasks, how often each is drawn, and what checkpoints hold of it."""

import copy
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsgym import task_dataset
from agentsgym.envs import ConfigError
from agentsgym.training.tasks import Curriculum, draw, shares
from helpers import CountdownEnv, DigitEnv


class Families(Curriculum):
    """Its rows as (family, number)."""

    def generation(self, number):
        return [tuple(row["task_data"].values()) for row in super().generation(number)]


def curriculum(sizes, size=4, state=None, shift=0):
    """Families of so many tasks; their numbers begin at `shift`."""
    tasks = [
        {"family": family, "number": k + shift}
        for family, number in sizes.items()
        for k in range(number)
    ]
    return curriculum_of(tasks, size, state)


def curriculum_of(tasks, size=4, state=None):
    state = {} if state is None else state
    rows = [{"task_data": task} for task in tasks]
    return Families(rows, size, 7, "family", True, lambda name: state)


# -- how often each kind is drawn -----------------------------------------------------------------


def test_shares_by_hand():
    """Weights 1.1, 0.5 and 0.1; kinds without any signal are all alike."""
    assert shares([1.0, 0.4, 0.0]) == pytest.approx([11 / 17, 5 / 17, 1 / 17])
    assert shares([0.0, 0.0]) == pytest.approx([0.5, 0.5])


def test_the_signal_of_a_kind_is_an_exponential_mean_of_its_groups():
    """Two kinds, both of the weight 1.1, share four groups: 1 → 0.9 → 0.91 and 1 → 0.9 → 0.81."""
    tasks = curriculum({"a": 5, "b": 5})
    assert tasks.signals == {"a": 1.0, "b": 1.0}
    kinds = [kind for kind, _ in tasks.generation(0)]
    assert sorted(kinds) == ["a", "a", "b", "b"]
    last_of_a = max(k for k, kind in enumerate(kinds) if kind == "a")
    figures = tasks.learn(0, [k == last_of_a for k in range(4)])
    assert tasks.signals == pytest.approx({"a": 0.91, "b": 0.81})
    assert figures == {
        "curriculum/share/a": 0.5,
        "curriculum/signal/a": tasks.signals["a"],
        "curriculum/share/b": 0.5,
        "curriculum/signal/b": tasks.signals["b"],
    }


def test_tasks_go_where_the_signal_is_and_come_back():
    """Two of three kinds have none: in the end 1.1 / 1.3 of the tasks are of the third one. Then it
    has none either, and another one has."""
    tasks = curriculum({"easy": 9, "hard": 9, "never": 9}, size=13)
    drawn = Counter()
    for number in range(400):
        rows = tasks.generation(number)
        learnable = "hard" if number < 200 else "easy"
        tasks.learn(number, [kind == learnable for kind, _ in rows])
        drawn.update((number // 100, kind) for kind, _ in rows)
    assert drawn[1, "hard"] / 1300 == pytest.approx(11 / 13, abs=0.01)
    assert drawn[3, "easy"] / 1300 == pytest.approx(11 / 13, abs=0.01)
    assert drawn[3, "never"] / 1300 == pytest.approx(1 / 13, abs=0.01)


SIGNALS = st.lists(st.floats(0, 1), min_size=1, max_size=9)


@given(SIGNALS, st.integers(1, 40), st.integers(0, 2**32))
def test_a_generation_has_each_kind_by_its_share(signals, size, seed):
    """Rounded up or down."""
    expected = shares(signals)
    drawn = Counter(draw(expected, size, np.random.default_rng(seed)))
    assert sum(drawn.values()) == size
    assert all(abs(drawn[k] - size * share) < 1 + 1e-9 for k, share in enumerate(expected))
    assert min(expected) >= 0.1 / 1.1 / len(signals) - 1e-12


# -- generations ----------------------------------------------------------------------------------

SIZES = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 6), min_size=1)


def play(tasks, generations, lag=0, first=0):
    """The rows of generations, each drawn as soon as the one `lag` + 1 before it is learned from.
    Whether a group has signal is a function of its row and its generation."""
    played, drawn = [], first
    for number in range(first, generations):
        while drawn <= number + lag:
            tasks.generation(drawn)
            drawn += 1
        rows = tasks.generation(number)
        played.append(rows)
        tasks.learn(number, [(ord(kind) + k * number) % 3 == 0 for kind, k in rows])
    return played


@given(SIZES, st.integers(1, 7), st.integers(1, 12), st.integers(0, 3))
def test_every_task_of_a_kind_is_drawn_once_before_any_again(sizes, size, generations, lag):
    drawn = Counter()
    for rows in play(curriculum(sizes, size), generations, lag):
        assert len(rows) == size
        drawn.update(rows)
    if not lag:
        for kind, number in sizes.items():
            times = [drawn[kind, k] for k in range(number)]
            assert max(times) - min(times) <= 1


@given(SIZES, st.integers(1, 5), st.integers(0, 3), st.integers(0, 6))
def test_what_a_checkpoint_holds_is_all_that_decides(sizes, size, lag, stop):
    """As JSON, with generations ahead too."""
    whole = play(curriculum(sizes, size), 10, lag)
    state = {}
    play(curriculum(sizes, size, state=state), stop, lag)
    resumed = curriculum(sizes, size, state=json.loads(json.dumps(state)))
    assert play(resumed, 10, lag, first=stop) == whole[stop:]


def test_a_generation_ahead_knows_what_was_learned_when_it_was_drawn():
    """With two ahead, generation 3 is drawn before generation 1 is learned from."""
    state = {}
    tasks = curriculum({"a": 9, "b": 9}, size=10, state=state)
    for number in range(3):
        tasks.generation(number)
    tasks.learn(0, [False] * 10)
    drawn = copy.deepcopy(tasks.generation(3))
    tasks.learn(1, [kind == "a" for kind, _ in tasks.generation(1)])
    assert tasks.generation(3) == drawn and list(state["open"]) == ["2", "3"]


def test_other_kinds_and_sizes_than_the_checkpoints():
    """What was drawn ahead for them is drawn anew, and what is known of a kind stays."""
    state = {}
    tasks = curriculum({"a": 3, "b": 3}, state=state)
    tasks.learn(0, [kind == "a" for kind, _ in tasks.generation(0)])
    tasks.generation(1)
    assert len(curriculum({"a": 3, "b": 3}, size=6, state=state).generation(1)) == 6
    tasks = curriculum({"b": 3, "c": 3}, size=6, state=state)
    assert {kind for kind, _ in tasks.generation(1)} == {"b", "c"}
    assert tasks.signals == pytest.approx({"b": 0.81, "c": 1.0})


def test_another_task_of_a_group_is_of_its_kind():
    tasks = curriculum({"a": 3, "b": 5})
    others = [tasks.other({"family": "b"}, number)["task_data"] for number in (0, 4, 7)]
    assert others == [{"family": "b", "number": k} for k in (0, 4, 2)]


# -- each task a kind ------------------------------------------------------------------------------


def numbered(number, size=4, state=None):
    """A curriculum over so many tasks, each a kind."""
    state = {} if state is None else state
    rows = [{"task_data": {"family": "a", "number": k}} for k in range(number)]
    return Families(rows, size, 7, "task", True, lambda name: state)


def test_the_signal_of_a_task_halves_with_each_group_without():
    """Four of eight tasks are drawn, of which one has signal: the others have 1/2 of it left."""
    tasks = numbered(8)
    drawn = [k for _, k in tasks.generation(0)]
    assert len(set(drawn)) == 4
    figures = tasks.learn(0, [k == drawn[0] for k in drawn])
    assert figures == {"curriculum/tried": 0.5, "curriculum/signal": 6.5 / 8}
    assert tasks.signals == {str(k): 0.5 if k in drawn[1:] else 1.0 for k in range(8)}
    again = [k for _, k in tasks.generation(1)]
    tasks.learn(1, [False] * 4)
    for k in range(8):
        before = 0.5 if k in drawn[1:] else 1.0
        assert tasks.signals[str(k)] == before * 0.5 ** again.count(k)


# -- in the trainer -------------------------------------------------------------------------------


def families(chat_tokenizer):
    """Sixteen tasks that a digit wins, and eight in which all earn the same."""
    digits = task_dataset(
        DigitEnv(chat_tokenizer), [{"seed": k, "family": "digit"} for k in range(16)]
    )
    same = task_dataset(
        CountdownEnv(chat_tokenizer), [{"rewards": [0.0], "family": "same"} for _ in range(8)]
    )
    return [*digits, *same]


def test_training_draws_and_logs_kinds_by_their_signal(make_trainer, chat_tokenizer):
    trainer = make_trainer(
        dataset=families(chat_tokenizer), curriculum="family", max_steps=4,
        per_device_train_batch_size=32,
    )  # fmt: skip
    trainer.train()
    groups = [
        [r.task_data["family"] for r in rollouts[::4]]
        for rollouts in trainer.played.steps().values()
    ]
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    signal = 1.0
    for kinds, entry in zip(groups, log, strict=True):
        assert entry["curriculum/share/same"] == kinds.count("same") / 8
        assert entry["curriculum/share/digit"] == kinds.count("digit") / 8
        signal *= 0.9 ** kinds.count("same")
        assert entry["curriculum/signal/same"] == pytest.approx(signal)
    assert groups[0].count("same") == 4 and groups[3].count("same") < 4


@pytest.mark.parametrize("shuffled", [True, False])
def test_each_kind_has_an_order_of_its_own(make_trainer, chat_tokenizer, shuffled):
    """Equal sets of seeds in both kinds do not go hand in hand."""
    rows = [{"seed": k, "family": family} for k in range(8) for family in "ab"]
    tasks = make_trainer(
        dataset=task_dataset(DigitEnv(chat_tokenizer), rows), curriculum="family",
        shuffle_dataset=shuffled,
    ).tasks  # fmt: skip
    assert len(tasks) == 16
    drawn = [row["task_data"] for number in range(8) for row in tasks.generation(number)]
    orders = [[task["seed"] for task in drawn if task["family"] == kind] for kind in "ab"]
    assert [sorted(order) for order in orders] == [[*range(8)]] * 2
    assert (orders == [[*range(8)]] * 2) is not shuffled
    assert (orders[0] == orders[1]) is not shuffled


def test_a_resumed_run_takes_the_same_course(twice, chat_tokenizer):
    """Also where a checkpoint lies between the updates of generations."""
    options = {"curriculum": "family", "max_steps": 12, "num_iterations": 2, "save_steps": 3}
    both = twice(6, dataset=families(chat_tokenizer), **options)
    whole, resumed = (
        {s: [r.task_data for r in rs] for s, rs in trainer.played.steps().items()}
        for trainer in both
    )
    assert resumed == {step: whole[step] for step in (6, 8, 10)}


# -- what has no kinds ----------------------------------------------------------------------------


@pytest.mark.parametrize("task", [{}, {"family": None}, {"family": ["a"]}, {"family": "a\n"}])
def test_a_task_without_a_kind_is_named(task):
    with pytest.raises(ConfigError, match=r"row 1: curriculum='family' needs a text or a number"):
        curriculum_of([{"family": 1}, task])


def test_numbers_are_kinds_too():
    assert list(curriculum_of([{"family": 2}, {"family": 10}, {"family": 2}]).signals) == [
        "10",
        "2",
    ]
