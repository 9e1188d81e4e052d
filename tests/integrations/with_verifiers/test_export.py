"""Our environments through verifiers: the rewards and conversations of `run_trial`."""

import asyncio

import pytest
import verifiers.v1 as vf
from verifiers.v1.utils.loaders import load_environment, resolve_env_config
from vf_eval import conversation, reward, vf_eval

from agentsgym import ScriptedAgent, make, register
from agentsgym.envs import ConfigError
from chat_server import ChatServer
from helpers import CountdownEnv

LINES = ["Is it an animal?", " Can it fly? ", "Is it a fruit?", "[apple]", "[violin]"]


def say(messages):
    turn = sum(message["role"] == "assistant" for message in messages)
    return LINES[min(turn, len(LINES) - 1)]


@pytest.fixture
def server():
    made = ChatServer(say)
    yield made
    made.close()


def play(server, name, config, tasks=4):
    """Episodes of verifiers on the first tasks of an environment."""
    taskset = {"id": "agentsgym_v1", "env": name, "env_config": config}
    env = load_environment(resolve_env_config({"taskset": taskset}))
    client = vf.EvalClientConfig(base_url=f"{server.url}/v1", api_key_var="NO_KEY")
    context = vf.ModelContext(model="scripted", client=client)

    async def run():
        async with env.serving():
            plays = (env.run_episode(task, context) for task in env.taskset.take(tasks))
            return await asyncio.gather(*plays)

    return asyncio.run(run())


def test_vf_eval_gives_the_rewards_of_run_trial(server, tmp_path):
    config = '{"max_steps_per_episode": 5}'
    options = ["--env.taskset.env", "TwentyQuestions", "--env.taskset.env-config", config]
    traces = vf_eval(tmp_path, server.url, "agentsgym_v1", *options, "-n", "8")
    env = make("TwentyQuestions", None, {"max_steps_per_episode": 5})
    tasks = [row["task_data"] for row in env.get_eval_dataset().select(range(8))]
    rollouts = env.run_trial(tasks, ScriptedAgent(say)).rollouts
    assert sorted(traces) == list(range(8))
    for number, rollout in enumerate(rollouts):
        trace = traces[number]
        (episode,) = rollout.episodes
        assert reward(trace) == rollout.final_reward
        assert trace["metrics"]["steps"] == len(episode.steps)
        assert trace["metrics"].get("win") == float(episode.win)
        info = trace["info"]["agentsgym"]
        assert info["step_rewards"] == [[step.reward for step in episode.steps]]
        assert info["stop_reasons"] == [episode.stop_reason]
        assert conversation(trace) == list(episode.messages)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("TwentyQuestions", {"system_prompt": "Think.", "max_steps_per_episode": 3}),
        ("Bandit", {"episodes_per_trial": 2, "free_shots": 1, "carry": "full"}),
    ],
)
def test_other_environments_and_trials_do_too(server, monkeypatch, name, config):
    monkeypatch.setenv("NO_KEY", "none")
    episodes = play(server, name, config)
    env = make(name, None, config)
    tasks = [episode.task.data.task_data for episode in episodes]
    for episode, rollout in zip(episodes, env.run_trial(tasks, ScriptedAgent(say)).rollouts):
        (trace,) = episode.traces
        assert episode.ok and trace.reward == rollout.final_reward
        assert trace.info["agentsgym"]["scored"] == [bool(e.score_weight) for e in rollout.episodes]
        last = [message.model_dump(exclude_none=True) for message in trace.messages]
        assert last == rollout.conversations()[-1][0]


def test_an_error_of_the_environment_is_an_error_of_the_episode(server, monkeypatch):
    monkeypatch.setenv("NO_KEY", "none")
    register("Countdown", CountdownEnv)
    server.say = lambda messages: "fail"
    (episode,) = play(server, "Countdown", {}, tasks=1)
    assert not episode.ok and "the environment broke" in episode.errors[-1].message


def test_an_episode_whose_endpoint_fails_is_not_scored(server, monkeypatch):
    monkeypatch.setenv("NO_KEY", "none")
    server.fault = lambda number: 400 if number > 1 else None
    (episode,) = play(server, "TwentyQuestions", {}, tasks=1)
    assert not episode.ok and not episode.traces[0].rewards


def test_trials_of_several_conversations_are_refused():
    taskset = {"id": "agentsgym_v1", "env": "Bandit", "env_config": {"episodes_per_trial": 2}}
    with pytest.raises(ConfigError, match=r"carry must be 'full'.*got carry='none'"):
        load_environment(resolve_env_config({"taskset": taskset}))


def test_an_environment_outside_of_the_package_must_be_allowed():
    taskset = {"id": "agentsgym_v1", "env": "helpers.DigitEnv"}
    with pytest.raises(LookupError, match=r"helpers\.DigitEnv"):
        load_environment(resolve_env_config({"taskset": taskset}))
    allowed = resolve_env_config({"taskset": {**taskset, "trust": True}})
    assert load_environment(allowed).taskset.env.name == "DigitEnv"
