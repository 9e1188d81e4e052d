"""A run with `train.report_to`: its tracker's own store is read back."""

import pytest

import tracker_stores as stores
from agentsgym.runs.files import RunDirectory, read_metrics

RUN = """\
env: digit.DigitEnv
model: model
threads: 1
train:
  max_steps: 4
  per_device_train_batch_size: 8
  num_generations: 4
  max_action_tokens: 4
  learning_rate: 1e-2
  eval_strategy: steps
  eval_steps: 2
  use_cpu: true
eval: {rollouts: 8}
"""


@pytest.fixture(
    params=[
        "tensorboard",
        *(pytest.param(name, marks=pytest.mark.doors) for name in ("wandb", "trackio", "mlflow")),
    ]
)
def tracked(request, workplace, invoke, agentsgym, monkeypatch):
    """A run that reports to one tracker: (its name, the directory of its store, that of the run).
    The environment variables are those of docs/viewer.md."""
    store = workplace / "store"
    store.mkdir()
    for name, value in {
        "TENSORBOARD_LOGGING_DIR": f"{store}/tensorboard",
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(store),
        "TRACKIO_DIR": f"{store}/trackio",
        "MLFLOW_TRACKING_URI": f"sqlite:///{store}/mlflow.db",
        "MLFLOW_EXPERIMENT_NAME": "agentsgym",
    }.items():
        monkeypatch.setenv(name, value)
    (workplace / "run.yaml").write_text(RUN)
    command = ["train", "run.yaml", f"train.report_to={request.param}"]
    if request.param == "tensorboard":
        assert invoke(*command).exit_code == 0
    else:  # they keep a state for the whole process
        done = agentsgym(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    return request.param, store, workplace / "runs" / "run"


# What Hugging Face's callbacks and TRL add: the summary of a run, and the time of a method.
OTHERS = ("train/global_step", "train/epoch", "train/train_", "train/total_flos", "train_", "epoch")
OTHERS += ("total_flos", "profiling/Time taken", "Time taken")


def in_tracker(name, tracker):
    """A name of metrics.jsonl in a tracker; docs/viewer.md has the rule."""
    if tracker == "mlflow":
        return name
    return f"eval/{name[5:]}" if name.startswith("eval_") else f"train/{name}"


def test_the_store_has_the_values_of_metrics_jsonl(tracked):
    tracker, store, run = tracked
    stored = getattr(stores, tracker)(store)
    written = {}
    for line in read_metrics(RunDirectory(run).metrics):
        step, phase = line.pop("step"), line.pop("phase")
        if phase == "eval":
            del line["seconds"]
        written |= {(in_tracker(name, tracker), step): value for name, value in line.items()}
    names = {in_tracker(name, tracker) for name in ("reward", "win_rate")}
    assert {name: [s for n, s in written if n == name] for name in names} == {
        name: [1, 2, 3, 4] for name in names
    }
    assert [s for n, s in written if n == in_tracker("eval_reward", tracker)] == [2, 4]
    assert {key: stored.values.get(key) for key in written} == {
        key: pytest.approx(value, rel=1e-6) for key, value in written.items()
    }
    more = {name for name, _ in set(stored.values) - set(written)}
    assert not [name for name in more if not name.startswith(OTHERS)]


def test_an_unknown_tracker_is_refused_before_a_file_is_written(workplace, invoke):
    (workplace / "run.yaml").write_text(RUN)
    result = invoke("train", "run.yaml", "train.report_to=tensorbord")
    assert result.exit_code == 2 and "tensorbord is not supported, only" in result.stderr
    assert not (workplace / "runs").exists()
