"""`--dry-run` finds what cannot work in several processes, and the cluster's files pass."""

from pathlib import Path

import pytest

from agentsgym.envs import ConfigError
from agentsgym.runs import Progress, load_config, parse_config
from agentsgym.runs.processes import Launch
from agentsgym.runs.rehearsal import check_launch, dry_run

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "examples/cluster"
# The run file → the learners with which the README starts it.
CLUSTERS = {"eight_gpus": Launch(6), "four_by_eight": Launch(16, 2)}

RUN = {
    "env": "Bandit",
    "model": {"path": "Qwen/Qwen3-1.7B", "dtype": "bfloat16"},
    "engine": {"urls": ["http://one:8000", "http://two:8000"]},
    "train": {"max_steps": 5, "per_device_train_batch_size": 4, "num_generations": 8},
}


def changed(**sections):
    parts = {**RUN, **sections}
    parts["train"] = {**RUN["train"], **sections.get("train", {})}
    return parse_config(parts)


@pytest.mark.parametrize(
    ("sections", "launch", "words"),
    [
        ({}, Launch(1), "generation_batch_size"),
        ({}, Launch(3), "the rollouts of 3 processes: .*num_gener"),
        ({"env_config": {"train_tasks": 3}}, Launch(8), "takes 4 tasks .* has 3; larger groups"),
        ({"engine": {}, "distributed": "fsdp2"}, Launch(16, 2), "fsdp2 splits .* the embedded"),
        ({}, Launch(4, 3), "3 machines cannot share 4 processes equally"),
        ({"engine": {"launch": 2}}, Launch(16, 2), "engine.launch starts servers on one machine"),
        ({"engine": {"urls": ["http://localhost:8000"]}}, Launch(16, 2), "is another server on"),
        ({"engine": {"urls": ["http://a:1", "http://a:1"]}}, Launch(2), "names http://a:1 twice"),
        ({"distributed": "zero2", "train": {"deepspeed": "a.json"}}, Launch(2), "sets train.deeps"),
        ({"distributed": "zero2", "keep_best": True}, Launch(2), "keep_best needs the whole"),
        ({"engine": {}, "train": {"max_staleness": 1}}, Launch(2), "max_staleness=1 needs an"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_named_before_anything_runs(monkeypatch, sections, launch, words):
    monkeypatch.setattr(
        "agentsgym.runs.rehearsal.train_run", lambda *_, **__: pytest.fail("it ran")
    )
    with pytest.raises(ConfigError, match=words):
        dry_run(changed(**sections), Progress(), launch)


def test_groups_are_counted_over_all_processes():
    """Two processes of four rollouts hold a group of eight; one process does not."""
    assert check_launch(changed(), Launch(2)) == 8
    assert check_launch(changed(), Launch(16, 2)) == 64


def test_few_tasks_are_shared_by_the_processes():
    """Two processes: larger groups of `train: auto`, so that 20 tasks are enough for both."""
    run = {"env": "Bandit", "env_config": {"train_tasks": 20}, "model": "tiny", "train": "auto"}
    assert check_launch(parse_config(run), Launch(2)) % 20 == 0


# -- the files of examples/cluster ----------------------------------------------------------------


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_settings_of_a_cluster_fit_its_processes(name):
    launch = CLUSTERS[name]
    config = load_config(str(CLUSTER / f"{name}.yaml"))
    assert check_launch(config, launch) == 32 * launch.processes
