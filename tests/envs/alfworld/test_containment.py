"""What the engine does to its process, and what happens to its process, stays contained."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import agentsgym
from agentsgym import ScriptedAgent
from agentsgym.envs.command_game import ExpertAgent


def test_argv_stdout_and_environment_are_back(task, monkeypatch, capsys):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    argv, stdout = sys.argv, sys.stdout
    env = agentsgym.make("ALFWorld", None, {"workers": 0})
    env.run_trial([task], ExpertAgent())
    assert sys.argv is argv
    assert sys.stdout is stdout
    assert "ALFWORLD_DATA" not in os.environ
    assert capsys.readouterr().out == ""


def test_threads_of_this_process_play_as_if_alone(tasks):
    def play(task):
        env = agentsgym.make("ALFWorld", None, {"workers": 0, "dense_reward": 1.0})
        script = ScriptedAgent([*env.expert_plan(task)[:3], "look", "help"])
        return env.run_trial([task], script)["final_completion_messages"]

    alone = [play(task) for task in tasks.values()]
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(play, tasks.values())) == alone
