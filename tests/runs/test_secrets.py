"""Keys and URL credentials reach no file of a run."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from agentsgym import ScriptedAgent
from agentsgym.envs import ConfigError
from agentsgym.runs import load_run, parse_config
from agentsgym.runs.files import RolloutWriter, RunDirectory, Summary, read_rollouts
from agentsgym.types import text as texts
from helpers import CountdownEnv

KEY, URL = "sk-very-secret-4711", "http://me:hunter2@host:8000"
DATA = {
    "env": "E",
    "env_config": {
        "api_key": KEY,
        "answerer": {"url": URL},
        "eos_token": "<end>",
        "system_prompt": "*** Rules ***",
    },
    "engine": {"urls": [URL]},
    "train": {"max_steps": 1},
}


@pytest.fixture(autouse=True)
def fresh_secrets(monkeypatch):
    monkeypatch.setattr(texts, "_KNOWN", set())


def hides(text: str) -> bool:
    return KEY not in text and "hunter2" not in text


def test_a_stored_configuration_holds_no_key_and_asks_for_it(tmp_path):
    config = parse_config(DATA)
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    assert hides(config.to_yaml()) and "eos_token: <end>" in config.to_yaml()
    with pytest.raises(ConfigError, match=r"env_config.api_key is masked, .* add env_config"):
        load_run(tmp_path)
    given = {
        "env_config.api_key": KEY,
        "env_config.answerer.url": URL,
        "engine.urls": [URL],
        "output_dir": None,
    }
    assert load_run(tmp_path, given) == config


def test_a_summary_and_rollouts_hold_no_key(tmp_path, plain_tokenizer):
    config = parse_config(DATA)
    summary = Summary(name="x", seed=0, env="E", env_config=config.env_config, model="tiny")
    summary.write(tmp_path / "summary.json")
    assert hides((tmp_path / "summary.json").read_text())
    played = CountdownEnv(plain_tokenizer).run_trial([{}], ScriptedAgent([f"use {KEY}"]))
    rollout = replace(played.rollouts[0], env_config=config.env_config, error=f"no way to {URL}")
    RolloutWriter(tmp_path)([rollout], {"phase": "train", "step": 0, "advantages": None})
    shard = RunDirectory(tmp_path).rollout_file("train", 0)
    assert hides(str(pq.read_table(shard).to_pylist()))
    back = next(read_rollouts(tmp_path))
    assert back.error == "no way to http://***@host:8000" and "use ***" in str(back.episodes)
