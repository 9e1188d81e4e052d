"""A taskset of verifiers as an environment of ours: equal play, named refusals, no hang."""

import asyncio
import itertools
import sys
import time
import types

import pytest
import verifiers.v1 as vf
from guess_env import GuessEnv
from vf_eval import conversation, reward, vf_eval

from agentsgym import ScriptedAgent
from agentsgym.checks import check_env
from agentsgym.integrations.verifiers import CannotKeep, VerifiersEnv
from chat_server import ChatServer


class FaultyEnv(GuessEnv):
    taskset = {"id": "faulty_v1"}


def halve(messages):
    """Plays well, with words around the digit."""
    low, high = 0, 9
    for reply, hint in itertools.pairwise(message["content"] for message in messages):
        if hint in ("Higher.", "Lower."):
            guess = int(reply[-1])
            low, high = (guess + 1, high) if hint == "Higher." else (low, guess - 1)
    return f"I say {min((low + high) // 2, 8)}"


@pytest.fixture(scope="module")
def env():
    return GuessEnv()


def tasks_of(env):
    return [row["task_data"] for row in env.get_eval_dataset()]


def test_rewards_and_conversations_are_those_of_verifiers_own_evaluation(env, tmp_path):
    server = ChatServer(halve)
    seat = ["--env.agent.harness.id", "agentsgym_v1", "--env.agent.runtime.type", "subprocess"]
    try:
        traces = vf_eval(tmp_path, server.url, "guess_v1", *seat)
    finally:
        server.close()
    tasks = [row["task_data"] for split in (env.get_train_dataset(), env.get_eval_dataset())
             for row in split]  # fmt: skip
    rollouts = env.run_trial(tasks, ScriptedAgent(halve)).rollouts
    assert len(traces) == len(rollouts) == 60
    for rollout in rollouts:
        trace = traces[rollout.task_data["idx"]]
        (episode,) = rollout.episodes
        assert episode.reward == reward(trace)
        assert episode.steps[-1].info["metrics"] == {"guesses": trace["metrics"]["guesses"]}
        assert episode.steps[-1].info["verifiers"] == trace["info"]
        assert list(episode.messages) == conversation(trace)
    assert {rollout.final_reward for rollout in rollouts} >= {0.0, 0.9, 0.8, 0.7}


def test_the_check_passes(env):
    report = check_env(GuessEnv, budget_seconds=10)
    assert report.passed, report.to_text()


def test_a_limit_of_ours_ends_the_episode_there(env):
    env = GuessEnv(None, {"max_steps_per_episode": 2})
    (rollout,) = env.run_trial(tasks_of(env)[:1], ScriptedAgent(["5"])).rollouts
    (episode,) = rollout.episodes
    assert (episode.stop_reason, episode.reward, len(episode.steps)) == ("max_steps", 0.0, 2)
    assert open_tasks(env) == 0


def open_tasks(env):
    async def count():
        names = [t.get_coro().__qualname__ for t in asyncio.all_tasks()]
        return names.count("_play")

    deadline = time.monotonic() + 60
    while (left := env._loop.run(count())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("break", "RuntimeError: the game broke"),
        ("exit", "SystemExit: not authenticated with prime"),
        ("vanish", "has ended with SystemExit('not authenticated with prime')"),
    ],
)
def test_a_fault_is_a_failed_rollout_and_the_next_session_plays(action, message):
    env = FaultyEnv()
    task = tasks_of(env)[0]
    env.run_trial([task], ScriptedAgent(["stop"]))  # whatever starts once has started
    (rollout,) = env.run_trial([task], ScriptedAgent(["1", action])).rollouts
    assert rollout.failed and message in rollout.error
    assert len(rollout.episodes[0].steps) == 1
    assert not env.run_trial([task], ScriptedAgent(["stop"])).rollouts[0].failed
    assert open_tasks(env) == 0


# -- what is refused ----------------------------------------------------------------------------


class PlainTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    pass


class ToolTask(PlainTask):
    @classmethod
    def toolsets(cls, config):
        return [object()]


class StopTask(PlainTask):
    @vf.stop
    async def too_long(self, trace: vf.Trace) -> bool:
        return False


class TwoSeats(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()
    rival: vf.AgentConfig = vf.AgentConfig()


TEXT = vf.TaskData(prompt="Go.")


def taskset_env(monkeypatch, name, task_class, data, env_config=None):
    """A VerifiersEnv on a taskset made here, whose module is `name`."""

    class MadeTaskset(vf.Taskset[task_class, vf.TasksetConfig]):
        def load(self):
            yield task_class(data)

    module = types.ModuleType(name)
    module.MadeTaskset, module.__all__ = MadeTaskset, ["MadeTaskset"]
    if env_config is not None:

        class MadeEnv(vf.Env[env_config]):
            async def run(self, task, agents):
                pass

        module.MadeEnv = MadeEnv
        module.__all__ += ["MadeEnv"]
    monkeypatch.setitem(sys.modules, name, module)
    return type("MadeVerifiersEnv", (VerifiersEnv,), {"taskset": {"id": name}})


@pytest.mark.parametrize(
    ("task_class", "env_config", "message"),
    [
        (ToolTask, None, "taskset 'made' has tools"),
        (PlainTask, TwoSeats, r"has several seats \(player, rival\)"),
    ],
)
def test_a_taskset_that_cannot_be_kept_is_refused_by_name(
    monkeypatch, task_class, env_config, message
):
    env_class = taskset_env(monkeypatch, "made", task_class, TEXT, env_config)
    with pytest.raises(CannotKeep, match=message):
        env_class()


@pytest.mark.parametrize(
    ("task_class", "data", "message"),
    [
        (StopTask, TEXT, "StopTask has stop hooks: ['too_long']"),
        (PlainTask, vf.TaskData(prompt="Go.", image="ubuntu"), "a Docker image: 'ubuntu'"),
    ],
)
def test_a_task_that_cannot_be_kept_is_refused_by_name(monkeypatch, task_class, data, message):
    env = taskset_env(monkeypatch, "made", task_class, data)()
    (row,) = [*env.get_train_dataset(), *env.get_eval_dataset()]
    assert message in env.check_task(row["task_data"])
    (rollout,) = env.run_trial([row["task_data"]], ScriptedAgent(["x"])).rollouts
    assert rollout.failed and message in rollout.error
