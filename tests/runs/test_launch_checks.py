"""`--dry-run` finds what cannot work in several processes, and the cluster's files pass."""

from pathlib import Path

import pytest
import yaml

from agentsgym.envs import ConfigError
from agentsgym.runs import Progress, load_config, parse_config
from agentsgym.runs import dry_run as dry_run_module
from agentsgym.runs.launch import Launch, check_launch, read_launch

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "examples/cluster"
CONFIGS = ROOT / "examples/configs"
# The run file → accelerate's configuration with which the README starts it.
PAIRS = {"eight_gpus": "eight_gpus.yaml", "four_by_eight": "deepspeed_zero2.yaml"}

RUN = {
    "env": "Bandit",
    "model": {"path": "Qwen/Qwen3-1.7B", "dtype": "bfloat16"},
    "engine": {"urls": ["http://one:8000", "http://two:8000"]},
    "train": {"max_steps": 5, "per_device_train_batch_size": 4, "num_generations": 8},
}
ZERO3 = Launch(16, 2, "DeepSpeed ZeRO-3")


def changed(**sections):
    parts = {**RUN, **sections}
    parts["train"] = {**RUN["train"], **sections.get("train", {})}
    return parse_config(parts)


@pytest.mark.parametrize(
    ("sections", "launch", "words"),
    [
        ({}, Launch(1), "generation_batch_size"),
        ({}, Launch(3), r"over 3 processes, whose 4 rollouts each are 12 together: .*num_gener"),
        ({"engine": {}}, ZERO3, "ZeRO-3 splits the model over 16 processes, and the embedded"),
        ({"engine": {"name": "process"}}, ZERO3, "samples from the whole model"),
        ({"engine": {"launch": 2}}, Launch(16, 2), "engine.launch starts servers on one machine"),
        ({"engine": {"urls": ["http://localhost:8000"]}}, Launch(16, 2), "is another server on"),
        ({"engine": {"urls": ["http://a:1", "http://a:1"]}}, Launch(2), "names http://a:1 twice"),
        ({}, ZERO3, "whole weights only from FSDP2"),
        ({"engine": {}, "train": {"max_staleness": 1}}, Launch(2), "max_staleness=1 needs an"),
        ({"engine": {"name": "vllm"}}, Launch(2), "needs engine.urls or engine.launch"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_named_before_anything_runs(monkeypatch, sections, launch, words):
    monkeypatch.setattr(dry_run_module, "train_run", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(ConfigError, match=words):
        dry_run_module.dry_run(changed(**sections), Progress(), launch)


def test_groups_are_counted_over_all_processes():
    """Two processes of four rollouts hold a group of eight; one process does not."""
    assert check_launch(changed(), Launch(2)).generation_batch_size == 8
    assert check_launch(changed(), Launch(16, 2)).generation_batch_size == 64


def written(tmp_path, data):
    path = tmp_path / "accelerate.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize(
    ("data", "launch"),
    [
        ({}, Launch()),
        ({"num_processes": 8, "distributed_type": "MULTI_GPU"}, Launch(8)),
        (
            {"num_processes": 16, "num_machines": 2, "distributed_type": "DEEPSPEED",
             "deepspeed_config": {"zero_stage": 3}}, ZERO3,
        ),
        (
            {"num_processes": 4, "distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}},
            Launch(4, 1, "FSDP2"),
        ),
    ],
)  # fmt: skip
def test_the_configuration_of_accelerate_says_how_it_is_launched(tmp_path, data, launch):
    assert read_launch(written(tmp_path, data)) == launch


def test_a_wrong_configuration_of_accelerate_is_named(tmp_path):
    for data, words in (
        ({"num_processes": "many"}, "num_processes must be a number from 1, got 'many'"),
        ({"num_processes": 3, "num_machines": 2}, "2 machines cannot share equally"),
    ):
        with pytest.raises(ConfigError, match=words):
            read_launch(written(tmp_path, data))
    with pytest.raises(ConfigError, match="there is no file"):
        read_launch(tmp_path / "none.yaml")


# -- the files of examples/cluster ----------------------------------------------------------------


@pytest.mark.parametrize("name", PAIRS)
def test_the_settings_of_a_cluster_fit_its_processes(name):
    launch = read_launch(CONFIGS / PAIRS[name])
    settings = check_launch(load_config(str(CLUSTER / f"{name}.yaml")), launch)
    assert settings.generation_batch_size == 32 * launch.processes
    assert settings.generation_batch_size % settings.num_generations == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_the_run_of_a_cluster_passes_a_dry_run_without_a_gpu(name, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(
        "train", str(CLUSTER / f"{name}.yaml"), "--dry-run", "--accelerate",
        str(CONFIGS / PAIRS[name]),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "1 optimizer step ran" in result.stdout and "processes" in result.stdout
    assert "model: Qwen/Qwen3-8B" in result.stdout and "chat template: " in result.stdout
    assert not list(tmp_path.iterdir())


def test_what_is_elsewhere_is_exchanged_and_reported(monkeypatch):
    """Other machines and generations ahead of the update."""
    seen = []
    monkeypatch.setattr(dry_run_module, "train_run", lambda small, **_: seen.append(small))
    sections = {"train": {"max_staleness": 1, "per_device_train_batch_size": 8}}
    done = dry_run_module.dry_run(changed(**sections), Progress(), Launch(16, 2))
    assert "before its update" in done.replacements["order"][1]
    assert "max_staleness" not in seen[0].train
    untested = " ".join(done.not_tried)
    assert "16 processes on 2 machines" in untested
