"""Time budgets and stop requests, with a clock of our own."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentsgym.runs import Progress, load_config, train_run
from agentsgym.runs.callbacks import (
    GracefulStopCallback,
    StopRequest,
    TimeBudgetCallback,
    ctrl_c_asks,
    sigterm_interrupts,
)
from agentsgym.runs.files import read_summary


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def control():
    return SimpleNamespace(should_training_stop=False, should_save=False)


def test_a_budget_asks_for_a_stop_when_it_is_used_up():
    clock, request = Clock(), StopRequest()
    budget = TimeBudgetCallback(60.0, request, used=20.0, clock=clock)
    assert budget.share_used() == pytest.approx(20 / 60)
    budget.on_train_begin(None, None, control())
    clock.now += 39.0
    budget.on_step_end(None, None, control())
    assert request.reason is None and budget.share_used() == pytest.approx(59 / 60)
    clock.now += 2.0
    budget.on_step_end(None, None, control())
    assert request.reason == "max_seconds" and budget.share_used() == 1.0


def test_the_learning_rate_falls_with_time():
    clock = Clock()
    budget = TimeBudgetCallback(100.0, StopRequest(), decay_to=0.2, clock=clock)
    budget.on_train_begin(None, None, control())
    for seconds, expected in ((0, 1.0), (50, 0.6), (100, 0.2), (150, 0.2)):
        clock.now = 100.0 + seconds
        group = {"lr": 1.0}  # the schedule sets it anew before each step
        optimizer = SimpleNamespace(param_groups=[group])
        budget.on_pre_optimizer_step(None, None, control(), optimizer=optimizer)
        assert group["lr"] == pytest.approx(expected)


def test_training_stops_at_generation_boundaries_only():
    request = StopRequest()
    stop = GracefulStopCallback(request, updates_per_generation=4)
    flags = control()
    stop.on_step_end(None, SimpleNamespace(global_step=4), flags)
    assert not flags.should_training_stop
    request.ask("interrupted")
    request.ask("max_seconds")  # the first reason stays
    for step in (5, 6, 7):
        stop.on_step_end(None, SimpleNamespace(global_step=step), flags)
        assert not flags.should_training_stop
    stop.on_step_end(None, SimpleNamespace(global_step=8), flags)
    assert flags.should_training_stop and flags.should_save
    assert request.reason == "interrupted"


def test_any_end_leaves_a_checkpoint():
    flags = control()
    flags.should_training_stop = True  # another callback found no signal
    GracefulStopCallback(StopRequest(), 1).on_step_end(None, SimpleNamespace(global_step=3), flags)
    assert flags.should_save


def test_the_first_ctrl_c_asks_and_the_second_interrupts():
    request, notes = StopRequest(), []
    before = signal.getsignal(signal.SIGINT)
    with ctrl_c_asks(request, notes.append):
        os.kill(os.getpid(), signal.SIGINT)
        assert request.reason == "interrupted" and len(notes) == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_sigterm_interrupts_what_is_no_training():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


class KilledWhileLoading(Progress):
    def phase(self, name, what):
        if name == "model":
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_that_is_killed_while_it_loads_is_interrupted(workplace):
    with pytest.raises(KeyboardInterrupt):
        train_run(load_config("toy.yaml"), progress=KilledWhileLoading())
    assert read_summary(Path("runs/toy/summary.json")).status == "interrupted"


def test_a_folder_of_other_files_is_not_filled(workplace, invoke):
    Path("mine").mkdir()
    Path("mine/notes.txt").touch()
    result = invoke("train", "toy.yaml", "--output", "mine")
    assert result.exit_code == 2 and "not empty" in result.stderr
    assert os.listdir("mine") == ["notes.txt"]
