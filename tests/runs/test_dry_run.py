"""`agentsgym train … --dry-run`: one step in small of a run that this machine cannot do."""

import json
import tempfile
from urllib.error import URLError

import pytest

from agentsgym.runs import Progress, parse_config, presets, rehearsal
from agentsgym.runs.processes import Launch
from chat_tokenizers import template, tokenizer_for
from helpers import CHATML

RUN = {
    "env": "Bandit",
    "model": {"path": "Qwen/Qwen3-1.7B", "dtype": "bfloat16"},
    "engine": {"urls": ["http://nowhere.invalid:9"]},
    "train": {"max_steps": 200, "per_device_train_batch_size": 64, "generation_batch_size": 128},
    "max_seconds": 3600,
}


@pytest.fixture
def dry_run(monkeypatch):
    """Runs a configuration in small; returns the remarks, the small run and its summary."""
    train_run, done = rehearsal.train_run, []

    def play(run, **more):
        done[:] = [run, train_run(run, **more)]
        return done[1]

    def run(launch=None, **sections):
        config = parse_config({**RUN, **sections})
        monkeypatch.setattr(rehearsal, "train_run", play)
        remarks = rehearsal.dry_run(config, Progress(), launch or Launch())
        return " ".join(remarks), *done

    return run


def test_a_step_is_played_and_trained_and_nothing_is_left(tmp_path, monkeypatch, dry_run):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    train = {"max_steps": 200, "max_staleness": 1, "optim": "adamw_8bit"}
    remarks, _, summary = dry_run(Launch(16, 2), train=train)
    assert summary.steps == 1 and summary.agent_tokens > 0
    assert "A random llama of 2 layers and width 64, with a small tokenizer" in remarks
    assert "the config.json of model 'Qwen/Qwen3-1.7B'" in remarks
    assert "16 processes on 2 machines" in remarks
    assert not list(tmp_path.iterdir())


def test_a_warm_start_asks_no_endpoint_and_needs_no_game_to_be_won(dry_run):
    start = {"source": "chat", "engine": {"urls": ["http://127.0.0.1:9"], "served_model": "big"}}
    assert dry_run(warm_start=start)[2].warm_started is None
    start = {"source": "random", "min_reward": 1e9, "probe_tasks": 3}
    assert dry_run(warm_start=start)[2].warm_started is not None


def test_the_chat_template_is_the_configured_one(workplace, dry_run):
    """TRL's belongs to the model's own tokenizer; a template file is used with any."""
    tokenizer_for(template("qwen3")).save_pretrained("model")
    (workplace / "model/config.json").write_text(json.dumps(SHAPE))
    remarks, small, _ = dry_run(model={"path": "model", "chat_template": "training"})
    assert "with its own tokenizer" in remarks and small.model.chat_template == "training"
    elsewhere = {"path": "Qwen/Qwen3-1.7B", "chat_template": "training"}
    assert dry_run(model=elsewhere)[1].model.chat_template == "own"
    (workplace / "t.jinja").write_text(CHATML.replace("assistant", "player"))
    elsewhere["chat_template"] = "t.jinja"
    assert dry_run(model=elsewhere)[1].model.chat_template == "t.jinja"


SHAPE = {
    "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1000,
}  # fmt: skip


def test_a_directory_with_a_configuration_alone_has_the_small_tokenizer(tmp_path, dry_run):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    remarks, _, summary = dry_run(model=str(tmp_path))
    assert summary.steps == 1
    assert "A random qwen3 of 2 layers and width 64, with a small tokenizer" in remarks


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch, dry_run):
    asked = []

    def ask(request, timeout):
        asked.append(request.full_url)
        raise URLError("no network")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("agentsgym.runs.weights.urlopen", ask)
    remarks, _, summary = dry_run()
    assert len(asked) == 1 and summary.steps == 1
    assert "does not answer" in remarks


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("no CPU is left")])
def test_what_ends_it_advises_no_resume_of_the_temporary_directory(error, monkeypatch, dry_run):
    def phases(run):
        error.add_note("of the phase itself")
        raise error

    monkeypatch.setattr("agentsgym.runs.train.TrainingRun._phases", phases)
    with pytest.raises(type(error)) as caught:
        dry_run()
    assert caught.value.__notes__ == ["of the phase itself"]


@pytest.mark.slow
@pytest.mark.parametrize("name", presets())
def test_every_preset_runs_in_small(name, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("train", name, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "1 optimizer step ran" in done.stdout and "peak" in done.stdout
    assert not list(tmp_path.iterdir())
