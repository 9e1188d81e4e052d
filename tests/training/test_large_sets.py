"""Training sets that are too large to be kept, listed or checked as a whole."""

import json
import tracemalloc

import pytest
import torch

from agentsgym import register
from agentsgym.envs import ConfigError, EnvPool
from agentsgym.envs.task_file import TaskFile
from agentsgym.training import tasks as module
from agentsgym.training.tasks import TaskSet
from helpers import DigitEnv


class Numbers:
    """Rows that are their numbers."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, number):
        return number


def drawn(size, seed=7):
    return TaskSet(Numbers(size), 4, seed, lambda row: None, 0)


@pytest.mark.parametrize("seed", [7, None])
@pytest.mark.parametrize("size", [4, 7, 8, 101])
def test_tasks_are_drawn_in_the_order_of_a_permutation_per_epoch(size, seed):
    tasks, per_epoch = drawn(size, seed), size // 4
    for epoch in range(2):
        order = list(range(size))
        if seed is not None:
            generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
            order = torch.randperm(size, generator=generator).tolist()
        generations = [tasks.generation(epoch * per_epoch + n) for n in range(per_epoch)]
        assert generations == [order[start : start + 4] for start in range(0, size - 3, 4)]


def test_a_generation_of_a_large_set_costs_no_list_of_it():
    tasks = drawn(1_000_000)
    tasks.generation(0)
    tracemalloc.start()
    tasks.generation(5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


# -- rows that are checked when they are drawn ---------------------------------------------------


@pytest.fixture
def large(monkeypatch, chat_tokenizer):
    """Sets of eight rows are large, and a third of them is checked before training."""
    register("Digit", DigitEnv)
    monkeypatch.setattr(module, "MOST_CHECKED", 7)
    monkeypatch.setattr(module, "_SAMPLE", 3)
    return DigitEnv(chat_tokenizer)


def digits(*seeds, env="Digit"):
    return [{"env_class_path": env, "env_config": {}, "task_data": {"seed": s}} for s in seeds]


@pytest.fixture
def checked(make_trainer, large):
    """Returns a function that prepares a training set as the trainer does."""
    from agentsgym.training import GRPOEnvConfig

    def prepare(rows, **options):
        args = GRPOEnvConfig(num_generations=4, use_cpu=True, report_to="none", **options)
        return module.training_tasks(rows, args, True, EnvPool())

    return prepare


def test_a_bad_row_of_a_large_set_gives_way_to_the_next_good_one(checked, caplog):
    rows = digits(0) + digits(1, 2, env="Nowhere") + digits(3, 4, 5, 6) + digits(7, env="Nowhere")
    found = checked(rows)
    assert len(found) == 8 and found.bad == 0
    drawn = [found[n]["task_data"]["seed"] for n in (0, 1, 1, 2, 3, 4, 5, 6, 7)]
    assert drawn == [0, 3, 3, 3, 3, 4, 5, 6, 0] and found.bad == 3
    assert caplog.text.count("row 1 is bad") == 1 and "Nowhere" in caplog.text
    strict = checked(rows, max_bad_rows=1)
    with pytest.raises(ConfigError, match=r"row 2 is bad.*more than max_bad_rows=1"):
        strict[1]


def test_a_bad_row_in_the_sample_of_a_large_set_refuses_it(checked):
    with pytest.raises(ConfigError, match=r"train_dataset: row 6: .*Nowhere"):
        checked(digits(*range(6)) + digits(6, env="Nowhere") + digits(7))


def test_a_trainer_draws_from_a_file(make_trainer, large, tmp_path):
    rows = digits(*range(4)) + digits(4, env="Nowhere") + digits(5, 6, 7, 8)
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seeds = []
    trainer = make_trainer(
        large, dataset=TaskFile(path), max_steps=1, shuffle_dataset=False, num_generations=2,
        per_device_train_batch_size=12,
        sink=lambda rollouts, info: seeds.extend(r.task_data["seed"] for r in rollouts[::2]),
    )  # fmt: skip
    trainer.train()
    assert seeds == [0, 1, 2, 3, 5, 5] and trainer.state.log_history[0]["bad_rows"] == 1
