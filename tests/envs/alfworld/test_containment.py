"""What the engine does to its process, and what happens to its process, stays contained."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import agentsgym
from agentsgym import ScriptedAgent
from agentsgym.envs.alfworld import ExpertAgent
from agentsgym.rollout.processes.worker import workers


def transcripts(env, tasks):
    return env.run_trial(tasks, ExpertAgent())["final_completion_messages"]


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


def test_a_killed_worker_costs_no_session(tasks):
    chosen = list(tasks.values())[:2]
    plans = [agentsgym.make("ALFWorld").expert_plan(task) for task in chosen]
    env = agentsgym.make("ALFWorld", None, {"workers": 1})
    killed = []

    def play(messages):
        said = [m["content"] for m in messages if m["role"] == "assistant"]
        plan = next(p for p in plans if list(p[: len(said)]) == said and _fits(p, messages))
        if len(said) == 2:
            killed.append(workers(1)[0].pid)
            os.kill(killed[-1], signal.SIGKILL)
        return plan[len(said)]

    def _fits(plan, messages):
        return (
            plan[len([m for m in messages if m["role"] == "assistant"])] in messages[-1]["content"]
        )

    batch = env.run_trial(chosen, ScriptedAgent(play))
    assert batch["final_rewards"] == [1.0, 1.0], [r.error for r in batch.rollouts]
    assert len(set(killed)) == 2


def test_a_script_without_a_guard(task, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "import agentsgym\n"
        "from agentsgym.envs.alfworld import ExpertAgent\n"
        "env = agentsgym.make('ALFWorld')\n"
        f"batch = env.run_trial([{dict(task)!r}] * 2, ExpertAgent())\n"
        "print(batch['final_rewards'], sys.argv[1:], 'textworld' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), "x"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "[1.0, 1.0] ['x'] False\n", done.stderr
