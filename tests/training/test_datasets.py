"""Training and evaluation sets in every shape, and rows that are no tasks."""

import copy
import json
from itertools import count, repeat

import pytest
import torch
from datasets import (
    Dataset,
    DatasetDict,
    Features,
    IterableDataset,
    IterableDatasetDict,
    Json,
    Value,
)

from agentsgym import register
from agentsgym.envs import ConfigError, EnvPool
from agentsgym.envs.dataset import TaskFile
from agentsgym.training import tasks as module
from agentsgym.training.tasks import TaskSet
from helpers import CountdownEnv, DigitEnv


@pytest.fixture
def env(chat_tokenizer):
    register("Digit", DigitEnv)
    register("Countdown", CountdownEnv)
    return DigitEnv(chat_tokenizer)


def digits(*seeds, env="Digit"):
    return [{"env_class_path": env, "env_config": {}, "task_data": {"seed": k}} for k in seeds]


def table(rows):
    """A Dataset; a key that a row has not becomes None."""
    columns = ("env_class_path", "env_config", "task_data")
    features = Features(
        {"env_class_path": Value("string"), "env_config": Json(), "task_data": Json()}
    )
    return Dataset.from_dict({c: [row.get(c) for row in rows] for c in columns}, features=features)


def streamed(rows):
    """A stream over rows that may be malformed."""
    return IterableDataset.from_generator(lambda: iter(copy.deepcopy(rows)))


def seeds(rollouts):
    return [r.task_data.get("seed") for r in rollouts]


def trained_on(trainer):
    return [seeds(rollouts) for rollouts in trainer.played.steps().values()]


# -- evaluation sets ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [list, table, streamed, iter])
def test_an_evaluation_set_in_any_shape_gives_the_same_metrics(make_trainer, env, shape):
    options = {"eval_strategy": "steps", "eval_steps": 1, "learning_rate": 0.0}
    trainer = make_trainer(env, eval_dataset=shape(digits(5, 6, 7)), **options)
    trainer.train()
    evaluations = trainer.played.steps("eval").values()
    assert [seeds(rollouts) for rollouts in evaluations] == [[5, 6, 7]] * 2
    assert len([e for e in trainer.state.log_history if "eval_reward" in e]) == 2


@pytest.mark.parametrize(
    "shape",
    [
        lambda sets: DatasetDict({name: table(rows) for name, rows in sets.items()}),
        lambda sets: IterableDatasetDict({name: streamed(rows) for name, rows in sets.items()}),
    ],
    ids=["DatasetDict", "IterableDatasetDict"],
)
def test_several_evaluation_sets_each_have_their_metrics(make_trainer, env, shape):
    sets = shape({"near": digits(1, 2), "far": digits(3)})
    trainer = make_trainer(
        env, eval_dataset=sets, eval_strategy="steps", eval_steps=2, save_strategy="steps",
        save_steps=2, load_best_model_at_end=True, metric_for_best_model="far_reward",
    )  # fmt: skip
    trainer.train()
    evaluated = [(info, rollouts) for info, rollouts in trainer.played if info["phase"] == "eval"]
    assert [(info["dataset"], info["step"], seeds(played)) for info, played in evaluated] == [
        ("near", 2, [1, 2]),
        ("far", 2, [3]),
    ]
    metrics = trainer.evaluate()
    assert {"eval_near_reward", "eval_far_reward", "eval_far_runtime"} <= set(metrics)
    assert "eval_reward" not in metrics
    assert trainer.state.best_global_step == 2
    assert set(trainer.evaluate("far")) == {name for name in metrics if "_far_" in name}


def test_with_several_sets_the_best_model_needs_to_know_which_decides(make_trainer, env):
    with pytest.raises(ValueError, match="'near_reward'"):
        make_trainer(
            env, eval_dataset={"near": digits(1), "far": digits(2)}, eval_strategy="steps",
            save_strategy="steps", save_steps=2, eval_steps=2, load_best_model_at_end=True,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "no eval_dataset"),
        ("far", "no evaluation set 'far'"),
        ([], "holds no tasks"),
        ({}, "is empty"),
        (5, "must be a dataset"),
        (repeat({}), "has more than"),
        ([{"task_data": {}}], "row 0"),
        ([{"env_class_path": "Nowhere", "env_config": {}, "task_data": {}}], "Nowhere"),
    ],
    ids=["none", "name", "list", "dict", "number", "endless", "row", "environment"],
)
def test_what_cannot_be_evaluated_is_refused(make_trainer, env, given, words):
    trainer = make_trainer(env)
    with pytest.raises(ValueError, match=words):
        trainer.evaluate(given)


# -- bad rows -------------------------------------------------------------------------------------

BAD = {
    "environment": {"env_class_path": "Nowhere", "env_config": {}, "task_data": {}},
    "config": {"env_class_path": "Digit", "env_config": {"colour": 1}, "task_data": {}},
    "column": {"env_class_path": "Digit", "task_data": {}},
    "import": {"env_class_path": "some.module.Env", "env_config": {}, "task_data": {}},
}


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize("which", ["train", "eval"])
def test_all_rows_are_checked_before_training_starts(make_trainer, env, fault, which):
    rows = table(digits(*range(8)) + [BAD[fault]] * 2)
    sets = {"dataset": rows} if which == "train" else {"eval_dataset": {"near": rows}}
    with pytest.raises(ValueError, match=rf"{which}_dataset.*: row 8 \(and 1 more\)"):
        make_trainer(env, **sets)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (None, "is missing"),
        (Dataset.from_dict({"prompt": ["a"] * 8}), "no column 'env_class_path'"),
        (table(digits(0)), "takes 2 tasks"),
        ({"train": digits(0, 1)}, "pass one of them"),
    ],
    ids=["none", "columns", "few", "dict"],
)
def test_what_cannot_be_trained_on_is_refused(make_trainer, env, dataset, words):
    from agentsgym.training import GRPOEnvTrainer

    args = make_trainer(env).args
    with pytest.raises(ValueError, match=words):
        GRPOEnvTrainer(None, args, dataset)


# -- streams --------------------------------------------------------------------------------------


def test_a_streamed_training_set_is_read_as_far_as_training_needs(make_trainer, env):
    """Two tasks in a generation: two generations need four; of five there are two whole ones."""
    endless = (row for k in count() for row in digits(k))
    trainer = make_trainer(env, dataset=endless, max_steps=2, shuffle_dataset=False)
    trainer.train()
    assert trained_on(trainer) == [[0] * 4 + [1] * 4, [2] * 4 + [3] * 4]
    assert next(endless)["task_data"]["seed"] == 4
    few = streamed(digits(*range(5)))
    trainer = make_trainer(env, dataset=few, max_steps=3, shuffle_dataset=False)
    trainer.train()
    assert trained_on(trainer) == [[0] * 4 + [1] * 4, [2] * 4 + [3] * 4, [0] * 4 + [1] * 4]


@pytest.mark.parametrize(
    ("rows", "steps", "words"),
    [
        (digits(*range(4)), -1, "max_steps"),
        (digits(0), 1, "train_dataset has 1"),
        ([*digits(0, 1), BAD["environment"], *digits(3)], 2, "train_dataset: row 2: .*Nowhere"),
    ],
    ids=["length", "few", "row"],
)
def test_a_stream_that_cannot_be_trained_on_is_refused(make_trainer, env, rows, steps, words):
    with pytest.raises(ValueError, match=words):
        make_trainer(env, dataset=streamed(rows), max_steps=steps)


# -- sets that are too large to be kept, listed or checked as a whole ------------------------------


def task_set(size, seed=7):
    return TaskSet(range(size), 4, seed)


@pytest.mark.parametrize("seed", [7, None])
@pytest.mark.parametrize("size", [4, 7, 8, 101])
def test_tasks_are_drawn_in_the_order_of_a_permutation_per_epoch(size, seed):
    tasks, per_epoch = task_set(size, seed), size // 4
    for epoch in range(2):
        order = list(range(size))
        if seed is not None:
            generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
            order = torch.randperm(size, generator=generator).tolist()
        generations = [tasks.generation(epoch * per_epoch + n) for n in range(per_epoch)]
        assert generations == [order[start : start + 4] for start in range(0, size - 3, 4)]


# -- sets of which a sample is checked -----------------------------------------------------------


@pytest.fixture
def large(monkeypatch, env):
    """Sets of eight rows are large, and a third of them is checked before training."""
    monkeypatch.setattr(module, "MOST_CHECKED", 7)
    monkeypatch.setattr(module, "_SAMPLE", 3)
    return env


@pytest.fixture
def checked(large):
    """Returns a function that prepares a training set as the trainer does."""
    from agentsgym.training import GRPOEnvConfig

    def prepare(rows, **options):
        args = GRPOEnvConfig(num_generations=4, use_cpu=True, report_to="none", **options)
        return module.training_tasks(rows, args, True, EnvPool(), lambda name: {})

    return prepare


def test_a_bad_row_in_the_sample_of_a_large_set_refuses_it(checked):
    with pytest.raises(ConfigError, match=r"train_dataset: row 6: .*Nowhere"):
        checked(digits(*range(6)) + digits(6, env="Nowhere") + digits(7))


def test_a_trainer_draws_from_a_file(make_trainer, large, tmp_path):
    rows = digits(*range(9))
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trainer = make_trainer(
        large, dataset=TaskFile(path), max_steps=1, shuffle_dataset=False, num_generations=2,
        per_device_train_batch_size=12,
    )  # fmt: skip
    trainer.train()
    assert trained_on(trainer)[0][::2] == list(range(6))
