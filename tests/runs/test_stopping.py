"""Time budgets and stop requests, with a clock of our own."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentsgym.runs import Progress, load_config, train_run
from agentsgym.runs.callbacks import RunCallback, ctrl_c_stops
from agentsgym.runs.files import read_summary
from agentsgym.training.ranks import Ranks

ALONE = Ranks(SimpleNamespace(process_index=0, num_processes=1))


def control():
    return SimpleNamespace(should_training_stop=False, should_save=False)


def at(step):
    return SimpleNamespace(global_step=step, max_steps=100)


def test_a_stop_comes_when_the_time_is_used_up():
    now = [0.0]
    stop = RunCallback(ALONE, 1, lambda: now[0], max_seconds=120.0)
    for seconds in (0, 40, 99, 150):
        now[0] = 20.0 + seconds
        stop.on_step_end(None, at(1), control())
        assert stop.reason == (None if seconds < 100 else "max_seconds")


def test_training_stops_at_generation_boundaries_only_and_saves():
    stop = RunCallback(ALONE, 4, float)
    flags = control()
    stop.on_step_end(None, at(4), flags)
    assert not flags.should_training_stop
    stop.request("interrupted")
    stop.request("max_seconds")  # the first reason stays
    for step in (5, 6, 7):
        stop.on_step_end(None, at(step), flags)
        assert not flags.should_training_stop
    stop.on_step_end(None, at(8), flags)
    assert flags.should_training_stop and flags.should_save and stop.reason == "interrupted"
    flags = control()
    flags.should_training_stop = True  # another callback found no signal
    RunCallback(ALONE, 1, float).on_step_end(None, at(3), flags)
    assert flags.should_save


def test_the_first_ctrl_c_requests_a_stop_and_the_second_interrupts():
    stop, notes = RunCallback(ALONE, 1, float), []
    before = signal.getsignal(signal.SIGINT)
    with ctrl_c_stops(stop, notes.append):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == "interrupted" and len(notes) == 1
        os.kill(os.getpid(), signal.SIGTERM)  # of a scheduler, which signals every process
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


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
