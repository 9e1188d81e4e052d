"""Real training runs of a few steps on a toy environment."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from agentsgym.envs import ConfigError
from agentsgym.report.stored import Source
from agentsgym.runs import Progress, load_config, load_run, train_run
from agentsgym.runs.files import (
    RunDirectory,
    read_metrics,
    read_rollouts,
    read_stored,
    read_summary,
)
from workplace import Notes

TIMES = {"seconds", "tokens_per_second", "time/rollouts", "time/update", "eval_runtime"}


class InterruptAt(Progress):
    """Presses Ctrl-C when a step is reported."""

    def __init__(self, step: int) -> None:
        self._step = step
        self.steps: list[int] = []

    def step(self, report) -> None:
        self.steps.append(report.step)
        if report.step == self._step:
            os.kill(os.getpid(), signal.SIGINT)


def weights(path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path).state_dict()


def timeless(directory):
    return [
        {key: value for key, value in line.items() if key not in TIMES}
        for line in read_metrics(RunDirectory(Path(directory)).metrics)
    ]


@pytest.fixture
def config(workplace):
    return lambda **overrides: load_config("toy.yaml", overrides)


def test_a_run_is_examined_once_during_training_and_at_its_end(config):
    """After two of four steps, and when all is on disk; the first look is in the notes."""
    looks, notes = [], Notes()

    def examine(root):
        looks.append((len(list(read_metrics(root / "metrics.jsonl"))), (root / "model").is_dir()))
        return [{"title": "It fails.", "evidence": ("0 of 4",), "next": "mend it", "n": len(looks)}]

    summary = train_run(config(), progress=notes, examine=examine)
    assert [has_model for _, has_model in looks] == [False, True] and looks[0][0] in (1, 2)
    assert [note for note in notes.notes if "fails" in note] == ["It fails. (0 of 4) Next: mend it"]
    stored = read_summary(RunDirectory(config().directory).summary)
    assert stored.findings == summary.findings and summary.findings[0]["n"] == 2


def test_what_cannot_examine_ends_no_run(config):
    notes = Notes()
    summary = train_run(config(), progress=notes, examine=lambda root: 1 / 0)
    assert summary.status == "finished" and summary.findings == []
    assert any("could not be examined" in note for note in notes.notes)


def test_a_run_from_beginning_to_end(config):
    summary = train_run(config())
    assert (summary.status, summary.stop_reason, summary.steps) == ("finished", "max_steps", 4)
    directory = RunDirectory(config().directory)
    assert read_summary(directory.summary) == summary
    assert summary.before.rollouts == summary.after.rollouts == 32
    assert summary.before.clusters == 8 and summary.env_config == {}
    assert summary.seconds == pytest.approx(sum(summary.phases.values()), abs=0.01)
    assert set(summary.phases) == {"model", "probe", "before", "rl", "after", "report"}
    lines = list(read_metrics(directory.metrics))
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all({"win_rate", "reward", "loss", "groups_without_signal"} <= set(m) for m in lines)
    assert directory.picture.is_file() and directory.last_checkpoint()[0] == 4
    trained = list(read_stored(directory.root, "train"))
    assert len(trained) == 4 * 16 and {line.step for line in trained} == {0, 1, 2, 3}
    assert sum(line.rollout.agent_tokens for line in trained) == summary.agent_tokens
    assert lines[-1]["total_agent_tokens"] == summary.agent_tokens
    wins = [r.episodes[-1].win for r in read_rollouts(directory.root, "after")]
    assert sum(wins) / len(wins) == summary.after.win_rate
    # The model that was saved is the one that was trained.
    start, end = weights("model"), weights(directory.model)
    assert any(not torch.equal(start[name], end[name]) for name in start)
    with pytest.raises(ConfigError, match="already contains a run"):
        train_run(config())


def test_equal_tasks_and_seeds_give_equal_figures_everywhere(config, invoke):
    """After the last step, during and after training, and by `agentsgym eval`."""
    evaluates = {"train.eval_strategy": "steps", "train.eval_steps": 2, "eval.temperature": 0.7}
    run = config(output_dir="run", **evaluates)
    summary = train_run(run)
    lines = [line for line in read_metrics(Path("run/metrics.jsonl")) if line["phase"] == "eval"]
    assert [line["step"] for line in lines] == [2, 4]
    assert summary.after != summary.before  # the reward alone can be the same by chance
    assert lines[-1]["eval_reward"] == summary.after.reward
    assert lines[-1]["eval_win_rate"] == summary.after.win_rate
    result = invoke("eval", "run", "--json")
    assert json.loads(result.stdout)["reward"] == summary.after.reward


def test_an_error_that_resuming_cannot_mend_names_the_setting(config):
    long = {"env_config.system_prompt": "long " * 2000, "signal_check": False}
    with pytest.raises(RuntimeError) as caught:
        train_run(config(output_dir="long", **long))
    (note,) = caught.value.__notes__
    assert "max_rollout_tokens" in note and "--resume" not in note


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(config):
    whole = train_run(config(output_dir="whole", **{"train.eval_strategy": "steps",
                                                   "train.eval_steps": 2}))  # fmt: skip
    parts = config(output_dir="parts", **{"train.eval_strategy": "steps", "train.eval_steps": 2})
    progress = InterruptAt(2)
    first = train_run(parts, progress=progress)
    assert (first.status, first.stop_reason, first.after) == ("interrupted", "interrupted", None)
    assert first.steps <= 3 and RunDirectory(Path("parts")).last_checkpoint()[0] == first.steps
    assert RunDirectory(Path("parts")).picture.is_file()
    second = train_run(load_run(Path("parts")), resume=True, progress=InterruptAt(-1))
    assert (second.status, second.stop_reason, second.steps) == ("finished", "max_steps", 4)
    assert second.before == first.before == whole.before
    assert second.after == whole.after
    assert second.agent_tokens == whole.agent_tokens
    assert timeless("parts") == timeless("whole")
    assert list(read_stored("parts")) == list(read_stored("whole"))
    mine, theirs = weights("parts/model"), weights("whole/model")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_a_run_killed_after_its_last_step_makes_no_further_one(config):
    whole = train_run(config(**{"train.save_steps": 2}))
    run = RunDirectory(config().directory)
    before, end = timeless(run.root), weights(run.model)
    for saved in (True, False):
        killed = {"status": "running", "after": None} | ({} if saved else {"stop_reason": None})
        whole.model_copy(update=killed).write(run.summary)
        if not saved:
            shutil.rmtree(run.model)
        again = train_run(load_run(run.root), resume=True)
        assert (again.status, again.stop_reason, again.steps) == ("finished", "max_steps", 4)
        assert (again.after, again.agent_tokens) == (whole.after, whole.agent_tokens)
        assert timeless(run.root) == before
        assert all(torch.equal(end[name], value) for name, value in weights(run.model).items())


def test_resuming_a_finished_run_only_evaluates_again(config):
    first = train_run(config())
    run, progress = RunDirectory(config().directory), InterruptAt(-1)
    played = list(read_stored(run.root))
    # As two processes would have stored them.
    shutil.copy(run.rollout_file("after", 4), run.rollout_file("after", 4, rank=1))
    again = train_run(load_run(run.root), resume=True, progress=progress)
    assert progress.steps == [] and again.status == "finished" and again.after == first.after
    assert list(read_stored(run.root)) == played
    longer = load_run(config().directory, {"train.max_steps": 6})
    assert train_run(longer, resume=True, progress=progress).steps == 6
    assert progress.steps == [5, 6]


def test_time_limits_a_run(config):
    progress = Notes()
    run = config(max_seconds=0.01, **{"train.max_steps": 500})
    summary = train_run(run, progress=progress)
    assert (summary.status, summary.stop_reason, summary.steps) == ("finished", "max_seconds", 1)
    assert [(report.step, report.max_steps) for report in progress.reports] == [(1, 500)]
    assert any("step 1 of 500" in note and "max_seconds=N" in note for note in progress.notes)


def test_a_run_that_only_time_limits_has_no_number_of_steps(config):
    progress = Notes()
    timed = config(max_seconds=0.01, **{"train.learning_rate": 1e-2})
    timed = timed.model_copy(update={"train": timed.train.changed({}, ["max_steps"])})
    train_run(timed, progress=progress)
    assert [(report.step, report.max_steps) for report in progress.reports] == [(1, None)]
    assert not any("max_seconds=N" in note for note in progress.notes)


def test_a_run_without_signal_says_why_it_stopped(config):
    run = config(
        **{"train.min_signal_share": 1.0, "train.min_signal_patience": 1,
           "env_config.max_steps_per_episode": 1, "train.max_action_tokens": 1}
    )  # fmt: skip
    summary = train_run(run)
    assert summary.status == "finished" and summary.stop_reason.startswith("no signal: ")
    assert RunDirectory(run.directory).last_checkpoint()[0] == summary.steps


def test_an_environment_without_tasks_is_refused_early(workplace):
    (workplace / "bare.py").write_text(
        "import agentsgym\nclass BareEnv(agentsgym.MultistepEnv):\n    pass\n"
    )
    with pytest.raises(ConfigError, match="BareEnv defines no training tasks"):
        train_run(load_config("toy.yaml", {"env": "bare.BareEnv"}))
    assert not (workplace / "runs").exists()


@pytest.fixture
def stopped(config):
    """`parts`, a run of 6 steps that was stopped when it had two checkpoints; what `whole`, which
    was not stopped, came to."""
    settings = {"train.save_steps": 2, "train.max_steps": 6}
    whole = train_run(config(output_dir="whole", **settings))
    train_run(config(output_dir="parts", **settings), progress=InterruptAt(4))
    return whole


def damage_it(path: Path, how: str) -> None:
    if how == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes({"empty": b"", "half": data[: len(data) // 2], "text": b"no"}[how])


@pytest.mark.parametrize(
    ("file", "how"),
    [
        ("model.safetensors", "half"),
        ("optimizer.pt", "half"),
        ("trainer_state.json", "gone"),
        ("rng_state.pth", "empty"),
        ("config.json", "text"),
        ("scheduler.pt", "gone"),
    ],
)
def test_every_damaged_checkpoint_file_is_seen(tmp_path, tiny_llama, file, how):
    from agentsgym.runs.weights import checkpoint_damage

    tiny_llama.save_pretrained(tmp_path)
    (tmp_path / "trainer_state.json").write_text("{}")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"a": torch.randn(100)}, tmp_path / name)
    assert checkpoint_damage(tmp_path) is None
    damage_it(tmp_path / file, how)
    assert file in checkpoint_damage(tmp_path)


def test_damage_costs_a_checkpoint_and_nothing_else(stopped):
    run, progress = RunDirectory(Path("parts")), Notes()
    (newest, path), (before, _) = run.all_checkpoints()
    damage_it(path / "model.safetensors", "half")
    shutil.rmtree(run.model)
    damage_it(run.summary, "empty")
    again = train_run(load_run(run.root), resume=True, progress=progress)
    assert (again.status, again.steps) == ("finished", 6)
    assert (again.before, again.after) == (None, stopped.after)
    assert again.agent_tokens == stopped.agent_tokens and timeless("parts") == timeless("whole")
    mine, theirs = weights("parts/model"), weights("whole/model")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert any(f"{path} is damaged (model.safetensors" in line for line in progress.notes)
    assert any("summary.json is damaged" in line for line in progress.notes)
    assert f"continuing from step {before}" in progress.notes
    assert run.last_checkpoint()[0] == 6 > newest


def test_what_ends_before_the_first_checkpoint_is_to_be_started_again(config, monkeypatch):
    def phases(run):
        raise KeyboardInterrupt

    monkeypatch.setattr("agentsgym.runs.train.TrainingRun._phases", phases)
    with pytest.raises(KeyboardInterrupt) as caught:
        train_run(config())
    (note,) = caught.value.__notes__
    assert "--resume runs/toy" in note and "--restart starts it again" in note


def test_a_training_that_fails_says_so_in_its_summary(config, monkeypatch):
    from agentsgym.runs.files import RolloutWriter

    written = RolloutWriter.__call__

    def fails_at_two(self, rollouts, info):
        if info["step"] == 2:
            raise OSError(28, "No space left on device", "rollouts/x")
        written(self, rollouts, info)

    monkeypatch.setattr(RolloutWriter, "__call__", fails_at_two)
    run = config(**{"train.save_steps": 1})
    with pytest.raises(OSError, match="No space left") as caught:
        train_run(run)
    assert "train --resume runs/toy continues" in caught.value.__notes__[0]
    directory = RunDirectory(run.directory)
    summary = read_summary(directory.summary)
    assert summary.status == "failed" and "No space left on device: 'rollouts/x'" in summary.error
    made = [line["step"] for line in read_metrics(directory.metrics)]
    assert summary.steps == made[-1] > 0
    monkeypatch.setattr(RolloutWriter, "__call__", written)
    again = train_run(load_run(directory.root), resume=True)
    assert (again.status, again.error, again.steps) == ("finished", None, 4)
    assert [line["step"] for line in read_metrics(directory.metrics)] == [1, 2, 3, 4]


def test_the_steps_of_a_killed_run_are_those_of_its_metrics(config):
    """Its summary was written before the first of them."""
    run = config()
    train_run(run)
    summary = read_summary(run.directory / "summary.json")
    summary.status, summary.steps = "running", 0
    summary.write(run.directory / "summary.json")
    assert Source(run.directory).overview()["summary"]["steps"] == 4


def test_a_run_that_goes_on_measures_kl_against_the_model_that_it_began_with(config):
    overrides = {"train.beta": 0.3, "train.save_steps": 2}

    def kls(name):
        return [line["kl"] for line in read_metrics(RunDirectory(Path(name)).metrics)]

    train_run(config(output_dir="whole", **overrides))
    parts = config(output_dir="parts", **overrides)
    train_run(parts, progress=InterruptAt(2))
    train_run(parts, resume=True)
    assert kls("whole")[0] == pytest.approx(0.0, abs=1e-5) and min(kls("whole")[1:]) > 1e-5
    assert kls("parts") == pytest.approx(kls("whole"), rel=1e-5)


def test_a_model_that_its_run_made_is_kept_as_the_reference(tiny_llama, tmp_path):
    from agentsgym.runs.resuming import name_reference
    from agentsgym.runs.settings import ModelSettings

    folder, made = tmp_path / "reference", ModelSettings(path="tiny")
    name_reference(tiny_llama, made, folder)
    began = {name: value.clone() for name, value in tiny_llama.state_dict().items()}
    with torch.no_grad():
        next(tiny_llama.parameters()).add_(1.0)
    name_reference(tiny_llama, made, folder)
    kept = weights(tiny_llama.config._name_or_path)
    assert all(torch.equal(kept[name], value) for name, value in began.items())
    assert [path.name for path in tmp_path.iterdir()] == ["reference"]


def test_a_run_whose_rollouts_all_fail_says_why(config, monkeypatch):
    from agentsgym.rollout import EveryRolloutFailed

    started = []

    def initialise(self, session_id, task_data):
        started.append(session_id)
        if len(started) > 16 + 32 + 2 * 16:  # the probe, the evaluation, two steps
            raise ConnectionError("the answerer is down")
        return {"seed": 0}

    import digit

    monkeypatch.setattr(digit.DigitEnv, "_initialize_episode", initialise)
    monkeypatch.setattr("agentsgym.runs.train.simple_players", lambda *args: {})  # they play too
    with pytest.raises(EveryRolloutFailed, match="after step 2"):
        train_run(config(**{"train.save_steps": 1}))
    directory = RunDirectory(config().directory)
    summary = read_summary(directory.summary)
    assert summary.status == "failed" and directory.last_checkpoint()[0] == 2
    assert "all 16 rollouts" in summary.error
    assert summary.error.endswith("the first one: ConnectionError: the answerer is down")
    failed = [line.rollout.failed for line in read_stored(directory.root, "train")]
    assert failed == [False] * 32 + [True] * 16


def played_in(place, phase):
    """The tasks and the conversations of an evaluation."""
    rollouts = read_rollouts(Path(place), phase)
    return [(r.task_data, [e.messages for e in r.episodes]) for r in rollouts]


def test_an_evaluation_of_the_run_plays_as_the_run_does(workplace, invoke):
    """With the tasks of its file, its seed, temperature and rollouts per task."""
    rows = (
        {"env_class_path": "digit.DigitEnv", "env_config": {}, "task_data": {"seed": number}}
        for number in range(100, 104)
    )
    Path("held-out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    played = {"seed": 7, "temperature": 0.7, "rollouts": 8, "rollouts_per_task": 2}
    settings = {"eval": played, "data.eval": "held-out.jsonl", "train.max_steps": 1}
    summary = train_run(load_config("toy.yaml", settings))
    result = invoke("eval", "runs/toy", "--trust", "--output", "played", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["reward"] == summary.after.reward
    theirs, ours = played_in("runs/toy", "after"), played_in("played", "eval")
    assert ours == theirs
    beside = invoke("eval", "model", "--vs", "runs/toy", "--trust", "-o", "pair")
    assert beside.exit_code == 0, beside.output
    assert [task for task, _ in played_in("pair/model", "eval")] == [task for task, _ in ours]
    other = invoke("eval", "runs/toy", "--trust", "--seed", "8", "--output", "other", "--json")
    assert other.exit_code == 0, other.output
    assert played_in("other", "eval") != ours
