"""What a killed run keeps, and which run may be resumed."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from agentsgym.envs import ConfigError
from agentsgym.runs import load_config, load_run, train_run
from agentsgym.runs.callbacks import RunCallback
from agentsgym.runs.files import RunDirectory, read_metrics, read_summary
from agentsgym.training.ranks import Ranks

RUN = Path("runs/toy")
ALONE = Ranks(SimpleNamespace(process_index=0, num_processes=1))


def control(step, callback):
    flags = SimpleNamespace(should_save=False, should_training_stop=False)
    callback.on_step_end(None, SimpleNamespace(global_step=step, max_steps=100), flags)
    return flags.should_save


def test_checkpoints_come_by_the_clock_at_generation_boundaries(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("agentsgym.runs.callbacks.time.monotonic", lambda: now[0])
    callback = RunCallback(ALONE, 2, float, checkpoint_seconds=180.0)
    callback.on_train_begin(None, None, None)
    for step, seconds, saved in ((2, 100, False), (3, 200, False), (4, 210, True)):
        now[0] = seconds
        assert control(step, callback) is saved
    now[0] = 240.0  # it took 30 seconds, so the next one comes 300 seconds later
    callback.on_save(None, None, None)
    for step, seconds, saved in ((6, 530, False), (8, 541, True)):
        now[0] = seconds
        assert control(step, callback) is saved


def test_checkpoints_need_no_setting_and_the_oldest_go(workplace, monkeypatch):
    """Without save_steps, of which transformers' default is 500; however long saving takes."""
    monkeypatch.setattr(RunCallback, "on_save", lambda *_, **__: None)
    settings = yaml.safe_load(Path("toy.yaml").read_text())
    del settings["train"]["save_steps"]
    Path("toy.yaml").write_text(yaml.safe_dump(settings))
    train_run(load_config("toy.yaml", {"checkpoint_seconds": 1e-9}))
    assert [step for step, _ in RunDirectory(RUN).all_checkpoints()] == [4, 3]
    never = {"checkpoint_seconds": 1e-9, "train.save_strategy": "no", "name": "never"}
    train_run(load_config("toy.yaml", never))
    last = RunDirectory(Path("runs/never")).all_checkpoints()
    assert [step for step, _ in last] == [4]


@pytest.fixture
def without_checkpoint(workplace):
    summary = train_run(load_config("toy.yaml"))
    summary.status, summary.stop_reason = "running", None
    summary.write(RUN / "summary.json")
    shutil.rmtree(RUN / "checkpoints")
    shutil.rmtree(RUN / "model")
    return workplace


def test_a_resume_without_a_checkpoint_asks_first(without_checkpoint, invoke):
    before = read_summary(RUN / "summary.json")
    for command in (("--resume", "runs/toy", "model=model"), ("toy.yaml", "--resume")):
        result = invoke("train", *command)
        assert result.exit_code == 2, result.output
        assert "no checkpoint" in result.stderr and "its 4 steps again" in result.stderr
        assert "--restart" in result.stderr
    assert read_summary(RUN / "summary.json") == before
    assert len(list(read_metrics(RUN / "metrics.jsonl"))) == 4
    result = invoke("train", "--resume", "runs/toy", "--restart", "--trust", "train.max_steps=2")
    assert result.exit_code == 0, result.output
    assert [line["step"] for line in read_metrics(RUN / "metrics.jsonl")] == [1, 2]


def test_one_command_begins_a_run_and_goes_on_with_it(workplace, invoke):
    for steps in (2, 4):
        command = ("toy.yaml", "--resume", "--restart", f"train.max_steps={steps}")
        assert invoke("train", *command).exit_code == 0
    assert read_summary(RUN / "summary.json").steps == 4
    assert not Path("runs/toy.1").exists()
    assert invoke("train", "toy.yaml", "--restart").exit_code == 2


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ({"env": "Bandit"}, ("env=digit.DigitEnv", "env=Bandit")),
        ({"model.path": "builtin:quickstart"}, ("model.path=model", "=builtin:quickstart")),
        ({"model.path": "tiny"}, ("model.path=model", "model.path=tiny")),
    ],
    ids=["environment", "model", "new model"],
)
def test_another_run_is_not_a_resumed_one(workplace, change, values):
    train_run(load_config("toy.yaml", {"train.max_steps": 1}))
    before = (RUN / "config.yaml").read_bytes(), (RUN / "summary.json").read_bytes()
    with pytest.raises(ConfigError) as raised:
        train_run(load_run(RUN, change | {"train.max_steps": 2}), resume=True)
    assert all(value in str(raised.value) for value in values)
    assert before == ((RUN / "config.yaml").read_bytes(), (RUN / "summary.json").read_bytes())


def test_a_run_is_resumed_wherever_it_lies(workplace, invoke, monkeypatch):
    train_run(load_config("toy.yaml", {"train.save_steps": 2}))
    whole = load_file(RUN / "model/model.safetensors")
    for folder in ("model", "checkpoints/checkpoint-4"):
        shutil.rmtree(RUN / folder)
    monkeypatch.setenv("HOME", str(workplace / "home"))
    Path("elsewhere").mkdir()
    shutil.copytree(RUN, "elsewhere/copied")
    RUN.rename("elsewhere/moved")
    for name in ("copied", "moved"):
        result = invoke("train", "--resume", f"elsewhere/{name}")
        assert result.exit_code == 0, result.output
        weights = load_file(f"elsewhere/{name}/model/model.safetensors")
        assert all(np.array_equal(whole[part], weights[part]) for part in whole)
        result = invoke("eval", f"elsewhere/{name}", "--rollouts", "2")
        assert result.exit_code == 0, result.output


def row(number: int) -> str:
    data = {"env_class_path": "digit.DigitEnv", "env_config": {}, "task_data": {"seed": number}}
    return json.dumps(data) + "\n"


def test_a_file_of_tasks_is_known_by_its_content(workplace):
    tasks = Path("tasks.jsonl")
    tasks.write_text("".join(map(row, range(8))))
    train_run(load_config("toy.yaml", {"data.train": str(tasks), "train.max_steps": 1}))
    first = read_summary(RUN / "summary.json").data["data.train"]
    tasks.write_text("".join(map(row, range(9))))
    with pytest.raises(ConfigError, match=r"data\.train") as raised:
        train_run(load_run(RUN, {"train.max_steps": 2}), resume=True)
    assert first in str(raised.value)
    Path("moved.jsonl").write_text("".join(map(row, range(8))))
    moved = {"data.train": "moved.jsonl", "train.max_steps": 2}
    assert train_run(load_run(RUN, moved), resume=True).steps == 2
    with pytest.raises(ConfigError, match="there is no such file"):
        train_run(load_run(RUN, {"data.train": None, "train.max_steps": 3}), resume=True)


def test_a_file_of_questions_of_the_environment_is_known_by_its_content(workplace):
    questions = Path("questions.jsonl")

    def write(count: int) -> None:
        lines = ({"question": f"1 + {n}", "answer": str(n + 1)} for n in range(count))
        questions.write_text("".join(json.dumps(line) + "\n" for line in lines))

    write(8)
    env_config = {"questions_file": str(questions)}
    changes = {"env": "ClassicalReasoning", "env_config": env_config, "train.max_steps": 1}
    config = load_config("toy.yaml", changes)
    train_run(config)
    write(9)
    with pytest.raises(ConfigError, match=r"env_config\.questions_file"):
        train_run(load_run(RUN, {"train.max_steps": 2}), resume=True)
