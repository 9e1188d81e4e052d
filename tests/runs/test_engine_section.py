"""The section `engine` of a run's file: `train`, `eval` and `play` take the same one."""

import json

import pytest
import yaml

from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.settings import EngineSettings
from agentsgym.runs import load_config, parse_config
from agentsgym.runs.files import RunDirectory, read_metrics
from agentsgym.runs.from_config import train_settings
from completions_server import CompletionsServer

KEY = "sk-8f2c91aa77"
DIGIT = ("--env", "digit.DigitEnv", "--rollouts", "4", "--json")


@pytest.fixture
def vllm(tiny_llama, chat_tokenizer):
    """A server of the workplace's model that wants a key."""
    server = CompletionsServer(EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=64), key=KEY)
    yield server
    server.close()


def run_of(engine, **train):
    return parse_config({"env": "Bandit", "engine": engine, "train": {"max_steps": 1} | train})


def test_a_string_is_the_name_and_dotted_keys_go_into_the_section(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({"env": "Bandit", "engine": "vllm"}))
    assert load_config(str(path)).engine.name == "vllm"
    changed = load_config(str(path), {"engine.urls": "http://a", "engine.capacity": 3}).engine
    assert (changed.name, changed.urls, changed.capacity) == ("vllm", ["http://a"], 3)
    assert load_config(str(path), {"engine": "embedded"}).engine.name == "embedded"


def test_the_section_sets_the_fields_of_the_trainer():
    section = {
        "name": "vllm",
        "urls": ["http://a", "http://b"],
        "served_model": "base",
        "key_env": "PATH",
        "capacity": 5,
    }
    settings = train_settings(run_of(section))
    assert settings.engine == EngineSettings(launch=0, **section)
    untouched = train_settings(run_of({})).engine
    assert (untouched.name, untouched.capacity) == (None, 256)


def test_training_sends_the_key_that_it_was_given(invoke, workplace, vllm, monkeypatch):
    command = ("train", "toy.yaml", "train.max_steps=2", f"engine.urls=[{vllm.url}]")
    refused = invoke(*command)
    assert refused.exit_code == 1 and "401" in refused.stderr, refused.output
    monkeypatch.delenv("SOME_KEY", raising=False)
    missing = invoke(*command, "engine.key_env=SOME_KEY", "model=nowhere")
    assert missing.exit_code == 2 and "SOME_KEY" in missing.stderr, missing.output
    monkeypatch.setenv("SOME_KEY", KEY)
    result = invoke(*command, "engine.key_env=SOME_KEY")
    assert result.exit_code == 0, result.output
    assert vllm.completions > 2 * 16 and KEY not in result.output
    # Every generation and evaluation got the weights of its step; nothing was sampled without.
    versions = [int(path.rpartition("-v")[2]) for path in vllm.loaded]
    assert versions == sorted(set(versions)) and versions[0] == 0 and versions[-1] == 2
    line, _ = read_metrics(RunDirectory(workplace / "runs" / "toy").metrics)
    assert line["time/weights"] > 0
    stored = (workplace / "runs" / "toy" / "config.yaml").read_text()
    assert "key_env: SOME_KEY" in stored and KEY not in stored


def test_servers_that_do_not_answer_are_named(invoke, workplace):
    result = invoke("train", "toy.yaml", "engine.urls=[http://127.0.0.1:9]")
    assert result.exit_code == 1, result.output
    assert "http://127.0.0.1:9" in result.stderr and len(result.stderr.splitlines()) == 1


def test_eval_and_play_take_the_section(invoke, workplace, vllm, monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    section = (f"engine.urls=[{vllm.url}]", "engine.served_model=tiny", "engine.key_env=SOME_KEY")
    result = invoke("eval", "model", *section, *DIGIT)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["failures"] == 0 and vllm.completions > 0
    before = vllm.completions
    played = invoke("play", "digit.DigitEnv", *section, "--agent", "model")
    assert played.exit_code == 0 and vllm.completions > before, played.output
