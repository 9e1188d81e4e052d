"""`agentsgym train … --processes N`: what one process does, over several."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from agentsgym.envs import ConfigError
from agentsgym.runs import load_config, parse_overrides, processes, train_run
from agentsgym.runs.files import RunDirectory, read_metrics, read_rollouts, read_summary
from agentsgym.runs.from_config import train_settings
from agentsgym.runs.processes import Ended, run_processes
from agentsgym.training.ranks import Ranks

SETTINGS = [
    "train.max_steps=4", "train.num_generations=8", "train.save_steps=2",
    "train.eval_strategy=steps", "train.eval_steps=2", "train.token_records=4", "eval.rollouts=36",
]  # fmt: skip
# Timings, and what is counted per process.
_OWN = (
    "time/",
    "seconds",
    "tokens_per_second",
    "occupancy",
    "eval_runtime",
    "step_time",
    "tokens_read",
    "distinct_tokens",
)


def train(*arguments, cwd, **variables):
    """`agentsgym train` as a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables}
    return subprocess.run(
        [sys.executable, "-m", "agentsgym", "train", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


def overrides(folder):
    """The settings for one process, which plays all rollouts of a step."""
    batch = "train.per_device_train_batch_size=32"
    return parse_overrides([*SETTINGS, batch, f"output_dir={folder}", "threads=1"])


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """Four steps of the quickstart in this process."""
    folder = tmp_path_factory.mktemp("one") / "run"
    train_run(load_config("quickstart", overrides(folder)))
    return RunDirectory(folder)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The same steps, half of their rollouts in each of two processes."""
    folder = tmp_path_factory.mktemp("two")
    batch = "train.per_device_train_batch_size=16"
    arguments = ["quickstart", "--processes", "2", batch, "output_dir=run", *SETTINGS]
    done = train(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return RunDirectory(folder / "run"), done


def rollouts(run, phase):
    played = list(read_rollouts(run.root, phase))
    by_session = {
        (phase, i, rollout.session_id): [row.token_ids.tolist() for row in rollout.rows]
        for i, rollout in enumerate(sorted(played, key=lambda rollout: rollout.seed))
    }
    assert len(by_session) == len(played) > 0
    return by_session


def assert_equal(two, one, phases=("before", "train", "eval", "after")):
    """Rollouts, figures and weights."""
    for phase in phases:
        assert rollouts(two, phase) == rollouts(one, phase)
    ours, theirs = read_summary(two.summary), read_summary(one.summary)
    for name in ("before", "after", "references", "steps", "agent_tokens", "stop_reason", "status"):
        assert getattr(ours, name) == getattr(theirs, name), name
    lines = zip(read_metrics(two.metrics), read_metrics(one.metrics), strict=True)
    for mine, other in lines:
        assert mine.keys() == other.keys()
        for name in mine.keys() - {"phase", *(n for n in mine if n.startswith(_OWN))}:
            assert mine[name] == pytest.approx(other[name], rel=1e-6, abs=1e-6), name
    ours, theirs = (load_file(run.model / "model.safetensors") for run in (two, one))
    for name, tensor in theirs.items():  # FSDP2 also writes a head that is tied
        assert float((ours[name] - tensor).abs().max()) < 1e-5, name


def test_two_processes_do_the_work_of_one(two, one):
    run, _ = two
    assert_equal(run, one)


def test_the_report_is_that_of_one_process(two):
    run, done = two
    assert done.stdout.count("Evaluation before: 36 rollouts") == 1
    assert done.stdout.count("Training ended after 4 of 4 steps: max_steps.") == 1
    assert run.picture.is_file() and not done.stderr


def test_each_process_stores_what_it_played_and_recorded(two):
    run, _ = two
    names = {path.name for path in run.rollouts.iterdir()}
    assert {"before-000000.parquet", "before-000000-r1.parquet", "after-000004-r1.parquet"} <= names
    assert len(list(run.token_records.glob("*-r1.parquet"))) == 4


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["2", "1"])
def test_a_killed_run_resumes_to_the_same_end(two, one, tmp_path, processes):
    """Also in another number of processes, whose batches are then as large together."""
    run, _ = two
    shutil.copytree(run.root, tmp_path / "run")
    mine = RunDirectory(tmp_path / "run")
    shutil.rmtree(mine.model)
    shutil.rmtree(mine.checkpoints / "checkpoint-4")
    batch = f"train.per_device_train_batch_size={32 // int(processes)}"
    more = ("--processes", processes)
    done = train("--resume", "run", batch, "output_dir=run", *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "continuing from step 2" in done.stdout
    assert_equal(mine, one)


def test_a_process_that_fails_ends_the_run_with_its_own_error(workplace):
    Path("broken.py").write_text(
        Path("digit.py").read_text()
        + "\nimport os\nfrom agentsgym.runs import train\n"
        + "\ndef broken(*_, **__):\n    raise RuntimeError('broken in this process')\n"
        + "\nif os.environ.get('RANK') == '1':\n    train.evaluate_trainer = broken\n"
    )
    done = train("toy.yaml", "env=broken.DigitEnv", "--processes", "2", cwd=workplace)
    assert done.returncode == 1
    assert "process 1: error: " in done.stderr and "broken in this process" in done.stderr
    summary = read_summary(RunDirectory(workplace / "runs/toy").summary)
    assert summary.status == "failed" and summary.error == "RuntimeError: broken in this process"


def test_a_process_that_waits_for_a_failed_one_is_killed(monkeypatch):
    script = "import os, time; time.sleep(100) if os.environ['RANK'] == '0' else exit('no tasks')"

    def start(module, *arguments, **options):
        return subprocess.Popen([sys.executable, "-c", script], **options)

    monkeypatch.setattr(processes, "start_python", start)
    monkeypatch.setattr(processes, "_GRACE", 0.2)
    assert run_processes(2, []) == Ended(1, rank=1, output="no tasks\n")


def test_processes_that_would_train_alone_are_refused(monkeypatch):
    class Alone:
        process_index, num_processes = 0, 1

    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"started 2 processes \(WORLD_SIZE\), but .* 1 train"):
        Ranks(Alone())


def in_one_and_two(words, folder):
    """The runs of these arguments by one process and by two."""
    halved = ("--processes", "2", "train.per_device_train_batch_size=8")
    for name, more in (("one", ()), ("two", halved)):
        # In bfloat16 the number of rows in a pass changes the tokens.
        done = train(*words, "model.dtype=float32", f"output_dir={name}", *more, cwd=folder)
        assert done.returncode == 0, done.stderr
    return RunDirectory(folder / "one"), RunDirectory(folder / "two")


@pytest.mark.slow
def test_a_warm_start_is_the_same(workplace):
    """Its games are played once, and the model is the same in both processes."""
    start = ["warm_start.source=random", "warm_start.games=40", "warm_start.probe_tasks=3"]
    words = ["toy.yaml", "env=Bandit", *start, "train.beta=0.05", "signal_check=false"]
    one, two = in_one_and_two(words, workplace)
    figures = [read_summary(run.summary).model_figures["warm_start"] for run in (one, two)]
    assert figures[0] == figures[1]
    assert_equal(two, one, ("before", "warmstart", "probe", "warmstarted", "train", "after"))


def test_a_number_that_is_not_the_launchers_is_refused(invoke, workplace, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = invoke("train", "toy.yaml", "--processes", "4")
    assert result.exit_code == 2 and "a launcher has started 2" in result.stderr
    assert not Path("runs").exists()


def test_each_process_needs_a_gpu_where_there_are_some(monkeypatch):
    import torch

    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match="4 processes need a GPU each, and this machine has 2"):
        train_settings(load_config("quickstart"))


def test_a_number_of_machines_without_a_dry_run_is_refused(invoke, workplace):
    result = invoke("train", "toy.yaml", "--processes", "4", "--machines", "2")
    assert result.exit_code == 2 and "--machines belongs to --dry-run" in result.stderr


# -- signals, servers, other launchers ------------------------------------------------------------

ACCELERATE = (
    *("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"),
    *("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"),
    *("-m", "agentsgym", "train"),
)


def started(workplace, module, *arguments):
    """The toy run in two processes, once it has trained a step."""
    words = ["toy.yaml", "train.max_steps=500", "train.per_device_train_batch_size=8", *arguments]
    process = subprocess.Popen(
        [sys.executable, "-m", *module, *words], cwd=workplace, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    metrics = workplace / "runs/toy/metrics.jsonl"
    while not (metrics.is_file() and metrics.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("module", [("agentsgym", "train", "--processes", "2"), ACCELERATE])
def test_one_ctrl_c_stops_at_the_next_step_with_a_checkpoint(workplace, module):
    process = started(workplace, module)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    run = RunDirectory(workplace / "runs/toy")
    summary = read_summary(run.summary)
    assert summary.status == "interrupted" and summary.steps > 0
    assert run.last_checkpoint()[0] == summary.steps
    assert f"Interrupted after step {summary.steps}. Continue with" in output


@pytest.mark.slow
def test_the_first_process_starts_the_servers_of_all(workplace):
    words = ["engine.launch=1", "engine.command=serve-model", "train.max_steps=1"]
    done = train("toy.yaml", *words, "model.dtype=float32", "--processes", "2", cwd=workplace)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("starting a server of") == 1
    files = (workplace / "runs/toy/rollouts").glob("*-r1.parquet")
    played = {path.name.partition("-")[0] for path in files}
    assert played == {"before", "probe", "train", "after"}
