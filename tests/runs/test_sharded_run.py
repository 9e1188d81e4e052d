"""A run over two processes with `distributed: fsdp2`, against the same in one process."""

import shutil
from contextlib import closing

import pytest

from agentsgym.generation import EmbeddedEngine
from agentsgym.runs import Progress, load_config, train_run
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.models import load_policy
from completions_server import CompletionsServer
from runs.test_several_processes import SETTINGS, assert_equal, overrides
from training.two import launch_two

pytestmark = pytest.mark.slow


@pytest.fixture
def server():
    """Speaks vLLM's protocol, with the quickstart's model at first."""
    policy = load_policy(load_config("quickstart"), Progress())
    engine = EmbeddedEngine(policy.model, policy.tokenizer, capacity=1)
    with closing(CompletionsServer(engine, follow=True)) as started:
        yield started


def test_a_sharded_run_is_resumed_and_equals_one_of_a_whole_model(tmp_path, server):
    whole, two = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "two")
    train_run(load_config("quickstart", overrides(whole.root) | {"engine.urls": [server.url]}))
    words = [*SETTINGS, "train.per_device_train_batch_size=16", f"engine.urls=[{server.url}]"]

    def sharded(*arguments):
        settings = ["distributed=fsdp2", f"output_dir={two.root}", *words]
        done = launch_two("runs.sharded_run", "train", *arguments, *settings, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]

    sharded("quickstart")
    assert (two.checkpoints / "checkpoint-5" / "optimizer.bin").is_file()
    assert_equal(two, whole)
    shutil.rmtree(two.model)
    shutil.rmtree(two.checkpoints / "checkpoint-10")
    sharded("--resume", two.root)
    assert_equal(two, whole)
