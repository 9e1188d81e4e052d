"""Real training runs of a few steps on a toy environment."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from agentsgym.envs import ConfigError
from agentsgym.report import RunDirectory, read_lines, read_metrics, read_rollouts, read_summary
from agentsgym.runs import Silent, load_config, load_run, train_run

TIMES = {"seconds", "tokens_per_second", "time/rollouts", "time/update", "eval_runtime"}


class InterruptAt(Silent):
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


def test_a_run_from_beginning_to_end(config):
    summary = train_run(config())
    assert (summary.status, summary.stop_reason, summary.steps) == ("finished", "max_steps", 4)
    directory = RunDirectory(config().directory)
    assert read_summary(directory.summary) == summary
    assert summary.before.episodes == summary.after.episodes == 32
    assert summary.before.secrets == 8 and summary.env_config == {}
    assert summary.seconds == pytest.approx(sum(summary.phases.values()), abs=0.01)
    assert set(summary.phases) == {"model", "before", "rl", "after", "report"}
    lines = list(read_metrics(directory.metrics))
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all({"win_rate", "reward", "loss", "groups_without_signal"} <= set(m) for m in lines)
    assert directory.picture.is_file() and directory.last_checkpoint()[0] == 4
    trained = list(read_lines(directory.root, "train"))
    assert len(trained) == 4 * 16 and {line.step for line in trained} == {0, 1, 2, 3}
    assert sum(line.rollout.agent_tokens for line in trained) == summary.agent_tokens
    assert lines[-1]["total_agent_tokens"] == summary.agent_tokens
    wins = [r.episodes[-1].win for r in read_rollouts(directory.root, "after")]
    assert sum(wins) / len(wins) == summary.after.win_rate
    # The model that was saved is the one that was trained.
    start, end = weights("model"), weights(directory.model)
    assert any(not torch.equal(start[name], end[name]) for name in start)
    with pytest.raises(ConfigError, match="holds a run already"):
        train_run(config())


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
    assert list(read_lines("parts")) == list(read_lines("whole"))
    mine, theirs = weights("parts/model"), weights("whole/model")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_what_came_after_the_checkpoint_is_played_again(config):
    """A crash between two checkpoints leaves metrics and rollouts that no weights know of."""
    whole = train_run(config(output_dir="whole", **{"train.save_steps": 2}))
    run = RunDirectory(config(output_dir="whole").directory)
    before = timeless("whole")
    rollouts = list(read_lines("whole"))
    shutil.rmtree(run.checkpoints / "checkpoint-4")
    shutil.rmtree(run.model)
    summary = whole.model_copy(update={"status": "running", "stop_reason": None, "after": None})
    summary.write(run.summary)
    again = train_run(load_run(run.root), resume=True)
    assert again.after == whole.after and again.agent_tokens == whole.agent_tokens
    assert timeless("whole") == before and list(read_lines("whole")) == rollouts


def test_resuming_a_finished_run_only_evaluates_again(config):
    first = train_run(config())
    progress = InterruptAt(-1)
    again = train_run(load_run(config().directory), resume=True, progress=progress)
    assert progress.steps == [] and again.status == "finished" and again.after == first.after
    longer = load_run(config().directory, {"train.max_steps": 6})
    assert train_run(longer, resume=True, progress=progress).steps == 6
    assert progress.steps == [5, 6]


def test_time_limits_a_run(config):
    run = config(max_seconds=0.01, time_decay_to=0.1, **{"train.max_steps": 500})
    summary = train_run(run)
    assert (summary.status, summary.stop_reason, summary.steps) == ("finished", "max_seconds", 1)


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
