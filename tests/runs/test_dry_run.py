"""`agentsgym train … --dry-run`: one step in small of a run that this machine cannot do."""

import json
import tempfile
from urllib.error import URLError

import pytest

import agentsgym.runs.dry_run as dry_run_module
from agentsgym.runs import Progress, parse_config, presets
from agentsgym.runs.dry_run import dry_run
from chat_tokenizers import template, tokenizer_for
from helpers import CHATML

RUN = {
    "env": "Bandit",
    "model": {"path": "Qwen/Qwen3-1.7B", "dtype": "bfloat16"},
    "engine": {"urls": ["http://127.0.0.1:9"]},
    "train": {"max_steps": 200, "per_device_train_batch_size": 64, "generation_batch_size": 128},
    "max_seconds": 3600,
}


def test_a_step_is_played_and_trained_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = dry_run(parse_config(RUN), Progress())
    assert done.summary.steps == 1 and done.summary.agent_tokens > 0
    assert done.model == "a random llama of 2 layers and width 64, with a small tokenizer"
    assert any("the config.json of model 'Qwen/Qwen3-1.7B'" in text for text in done.not_tried)
    assert not list(tmp_path.iterdir())


def test_a_warm_start_asks_no_endpoint_and_needs_no_game_to_be_won():
    start = {"source": "chat", "engine": {"urls": ["http://127.0.0.1:9"], "served_model": "big"}}
    done = dry_run(parse_config({**RUN, "warm_start": start}), Progress())
    assert done.summary.warm_started is None
    run = {**RUN, "warm_start": {"source": "random", "min_reward": 1e9, "probe_tasks": 3}}
    assert dry_run(parse_config(run), Progress()).summary.warm_started is not None


def test_the_chat_template_is_the_configured_one(workplace, monkeypatch):
    """TRL's belongs to the model's own tokenizer; a template file is used with any."""
    seen = []
    play = dry_run_module.train_run
    monkeypatch.setattr(
        dry_run_module, "train_run", lambda run, **more: seen.append(run) or play(run, **more)
    )
    tokenizer_for(template("qwen3")).save_pretrained("model")
    model = {"path": "model", "chat_template": "training"}
    run = {**RUN, "model": model}
    assert dry_run(parse_config(run), Progress()).model.endswith("with its own tokenizer")
    assert seen[-1].model.chat_template == "training"
    elsewhere = {**run, "model": {**model, "path": "Qwen/Qwen3-1.7B"}}
    dry_run(parse_config(elsewhere), Progress())
    assert seen[-1].model.chat_template == "own"


def test_a_template_file_is_used_with_any_tokenizer(tmp_path, monkeypatch):
    (tmp_path / "t.jinja").write_text(CHATML.replace("assistant", "player"))
    calls = []
    build = dry_run_module.with_template
    monkeypatch.setattr(
        dry_run_module, "with_template", lambda *given: calls.append(build(*given)) or calls[-1]
    )
    model = {**RUN["model"], "chat_template": str(tmp_path / "t.jinja")}
    dry_run(parse_config({**RUN, "model": model}), Progress())
    assert "player" in calls[0].chat_template


SHAPE = {
    "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1000,
}  # fmt: skip


def test_a_directory_with_a_configuration_alone_has_the_small_tokenizer(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    done = dry_run(parse_config({**RUN, "model": str(tmp_path)}), Progress())
    assert done.summary.steps == 1
    assert done.model == "a random qwen3 of 2 layers and width 64, with a small tokenizer"


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch):
    asked = []

    def ask(request, timeout):
        asked.append(request.full_url)
        raise URLError("no network")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("agentsgym.runs.models.pretrained.urlopen", ask)
    done = dry_run(parse_config(RUN), Progress())
    assert len(asked) == 1 and done.summary.steps == 1
    assert any("does not answer" in text for text in done.not_tried)


@pytest.mark.slow
@pytest.mark.parametrize("name", presets())
def test_every_preset_runs_in_small(name, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("train", name, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "1 optimizer step ran" in done.stdout and "peak" in done.stdout
    assert not list(tmp_path.iterdir())
