"""Runs whose actions another engine samples than the embedded one."""

import pytest

from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.runs import load_config
from agentsgym.runs.files import RunDirectory, read_metrics, read_summary
from completions_server import CompletionsServer


@pytest.fixture
def server(workplace, tiny_llama, chat_tokenizer):
    """A server that serves the model of the run."""
    server = CompletionsServer(EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=64))
    yield server
    server.close()


def test_a_run_samples_from_the_servers_that_it_names(invoke, workplace, server):
    result = invoke(
        "train", "toy.yaml", "train.max_steps=2", f"engine.urls=[{server.url}]"
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "95 % interval" in result.stdout and server.completions > 2 * 16
    # Every generation and evaluation got the weights of its step; nothing was sampled without.
    versions = [int(path.rpartition("-v")[2]) for path in server.loaded]
    assert versions == sorted(set(versions)) and versions[0] == 0 and versions[-1] == 2
    run = RunDirectory(load_config("toy.yaml").directory)
    assert [line["step"] for line in read_metrics(run.metrics)] == [1, 2]
    summary = read_summary(run.summary)
    for figures in (summary.before, summary.after):
        assert (figures.episodes, figures.failures) == (32, 0)


def test_servers_that_do_not_answer_are_named(invoke, workplace):
    result = invoke("train", "toy.yaml", "engine.urls=[http://127.0.0.1:9]")
    assert result.exit_code == 1, result.output
    assert "http://127.0.0.1:9" in result.stderr and len(result.stderr.splitlines()) == 1
