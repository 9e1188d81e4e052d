"""Our environments as tasks of Inspect: the same games as natively, and every way to fail. Run with
`make test-doors DOOR=inspect`."""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import anyio
import pytest

pytest.importorskip("inspect_ai", reason="needs inspect-ai: make test-doors DOOR=inspect")

from inspect_ai import eval as inspect_eval
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from agentsgym import make
from agentsgym.envs import ConfigError, UnknownEnvironment
from agentsgym.integrations.inspect.task import env_task
from chat_server import ChatServer
from checks.snippets import blocks
from helpers import CountdownEnv

ROOT = Path(__file__).parents[2]
ACTIONS = {
    "TwentyQuestions": ["Is it alive?", "Is it red?", "[apple]", "what"],
    "Bandit": ["[1]", "[2]", "pull", "[3]"],
}
CARRIED = {"episodes_per_trial": 2, "free_shots": 1, "max_steps_per_episode": 3}


def says(messages, actions):
    """What a player says that depends on all that was said before."""
    text = "\x00".join(f"{role}:{content}" for role, content in messages)
    return actions[zlib.crc32(text.encode()) % len(actions)]


class Player:
    """That player as an agent of ours."""

    def __init__(self, actions):
        self._actions = actions

    def get_action(self, messages, agent_state):
        return says([(m["role"], m["content"]) for m in messages], self._actions), None


def output(text, stop_reason="stop"):
    """An answer that tells its tokens: Inspect would load a tokenizer to count them."""
    made = ModelOutput.from_content("mockllm/model", text, stop_reason)
    made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return made


def model(answer):
    """A model that answers with a function of the conversation."""

    def custom(messages, tools, choice, config):
        reply = answer([(m.role, m.text) for m in messages])
        return reply if isinstance(reply, ModelOutput) else output(reply)

    return get_model("mockllm/model", custom_outputs=custom)


@pytest.fixture
def run(tmp_path):
    """Runs a task; the log as it was written."""

    def call(task, answer, **options):
        (log,) = inspect_eval(
            task,
            model=model(answer),
            display="none",
            log_dir=str(tmp_path / "logs"),
            **options,
        )
        return read_eval_log(log.location, resolve_attachments=True)

    return call


def turns(sample):
    return [e for e in sample.events if e.event == "model"]


def step_rewards(sample):
    return [e.score.value for e in sample.events if e.event == "score" and e.intermediate]


ALONE = {"max_steps_per_episode": 3}
TRIALS = [ALONE, {**ALONE, "context_limit": 60}]
TRIALS += [{**CARRIED, "carry": carry} for carry in ("none", "full", "summary")]


@pytest.mark.parametrize("config", TRIALS, ids=["one episode", "notes", "none", "full", "summary"])
@pytest.mark.parametrize("name", ACTIONS)
def test_games_equal_those_of_run_trial(run, name, config):
    env = make(name, None, config)
    rows = [env.get_eval_dataset()[k]["task_data"] for k in range(3)]
    native = env.run_trial(rows, Player(ACTIONS[name]), 2).rollouts
    log = run(
        env_task(name, env_config=config),
        lambda messages: says(messages, ACTIONS[name]),
        limit=3,
        epochs=2,
    )
    assert log.status == "success" and len(log.samples) == len(native) == 6
    samples = {(sample.id, sample.epoch): sample for sample in log.samples}
    for rollout in native:
        sample = samples[rollout.group, rollout.index + 1]
        steps = [step for episode in rollout.episodes for step in episode.steps]
        assert [turn.output.completion for turn in turns(sample)] == [s.action for s in steps]
        assert step_rewards(sample) == [step.reward for step in steps]
        reasons = [episode["stop_reason"] for episode in sample.store["agentsgym"]["episodes"]]
        assert reasons == [episode.stop_reason for episode in rollout.episodes]
        inputs = [
            [{"role": m.role, "content": m.text} for m in turn.input] for turn in turns(sample)
        ]
        seen = [
            messages[:place]
            for messages, _ in rollout.conversations()
            for place, message in enumerate(messages)
            if message["role"] == "assistant"
        ]
        assert inputs == seen
        assert sample.scores["reward"].value == pytest.approx(rollout.final_reward)
        spans = [e.name for e in sample.events if e.event == "span_begin" and "episode" in e.name]
        assert len(spans) == len(rollout.episodes)
        assert ("(free shot)" in spans[0]) == (rollout.episodes[0].score_weight == 0)
    mean = {s.name: s.metrics["mean"].value for s in log.results.scores}
    assert mean["reward"] == pytest.approx(sum(r.final_reward for r in native) / 6)


def test_an_environment_that_raises_is_the_error_of_its_sample_only(run):
    games = iter(["a", "fail", "a", "b", "a", "b"])
    log = run(
        env_task("helpers.CountdownEnv", trust=["helpers"]),
        lambda messages: next(games),
        limit=3,
        max_samples=1,
    )
    errors = [sample.error for sample in log.samples]
    assert [error is None for error in errors] == [False, True, True]
    assert "the environment broke" in errors[0].message
    assert "in _step_episode" in errors[0].traceback
    assert log.status == "success" and log.samples[0].scores in (None, {})
    reward = next(score for score in log.results.scores if score.name == "reward")
    assert reward.scored_samples == 2


def test_an_error_of_the_provider_is_an_error_and_closes_the_trial(run, monkeypatch):
    ended = []
    monkeypatch.setattr(
        CountdownEnv, "_end_episode", lambda self, sid, state: ended.append(sid), raising=False
    )

    def answer(messages):
        if len(messages) > 1:
            raise RuntimeError("the provider refuses")
        return "a"

    task = env_task("helpers.CountdownEnv", trust=["helpers"])
    log = run(task, answer, limit=2)
    assert all("the provider refuses" in sample.error.message for sample in log.samples)
    assert len(ended) == 2


def test_a_limit_of_inspect_ends_the_trial_and_scores_it(run):
    task = env_task("helpers.CountdownEnv", {"bonus": 0.5}, "train", trust=["helpers"])
    log = run(task, lambda messages: "a", limit=1, message_limit=3)
    (sample,) = log.samples
    assert sample.limit.type == "message" and sample.error is None
    assert sample.store["agentsgym"]["episodes"][0]["stop_reason"] == "limit"
    assert sample.scores["reward"].value == 0.5


def test_a_model_that_does_not_answer_in_time_does_not_hold_the_evaluation(tmp_path):
    async def never(messages, tools, choice, config):
        await anyio.sleep(600)

    (log,) = inspect_eval(
        env_task("helpers.CountdownEnv", trust=["helpers"]),
        model=get_model("mockllm/model", custom_outputs=never),
        limit=2,
        time_limit=1,
        display="none",
        log_dir=str(tmp_path),
    )
    for sample in log.samples:
        assert sample.limit.type == "time" and sample.error is None
        assert sample.store["agentsgym"]["episodes"][0]["stop_reason"] == "limit"
        assert sample.scores["reward"].value == 0.0  # no step, no reward


def test_a_full_context_ends_the_trial_as_natively(run):
    task = env_task("helpers.CountdownEnv", trust=["helpers"])
    log = run(task, lambda messages: output("", "model_length"), limit=1)
    stored = log.samples[0].store["agentsgym"]
    assert stored["episodes"][0]["stop_reason"] == "max_rollout_tokens"
    assert stored["episodes"][0]["steps"] == 0


def test_bad_settings_are_named(run):
    with pytest.raises(ConfigError, match="hintz"):
        env_task("TwentyQuestions", env_config={"hintz": 1})
    with pytest.raises(UnknownEnvironment):
        env_task("Nothing")
    with pytest.raises(ConfigError, match="tasks must be eval or train"):
        env_task("Bandit", tasks="test")


def test_the_command_line_plays_every_environment_by_name_with_a_provider(tmp_path):
    """`inspect eval` in a process of its own, against a chat endpoint on this machine."""
    pytest.importorskip("openai", reason="needs openai: make test-doors DOOR=inspect")
    server = ChatServer(say=lambda messages: "[apple]")
    program = Path(sys.executable).with_name("inspect")
    paths = [str(ROOT / "src"), str(ROOT / "tests")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "LOCAL_API_KEY": "none"}

    def call(task, *arguments):
        command = [program, "eval", task, "--model", "openai-api/local/some-model"]
        options = ["--model-base-url", f"{server.url}/v1", "--log-dir", str(tmp_path / "logs")]
        return subprocess.run(
            [*command, *options, "--limit", "2", "--display", "plain", *arguments],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240,
        )  # fmt: skip

    try:
        done = call("agentsgym/TwentyQuestions", "-T", "hints=2", "-T", "max_steps_per_episode=4")
    finally:
        server.close()
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "logs").iterdir()
    log = read_eval_log(str(path))
    assert log.eval.task == "agentsgym/TwentyQuestions" and log.eval.task_args["hints"] == 2
    assert len(log.samples) == 2 and not any(sample.error for sample in log.samples)
    assert [turn.output.completion for turn in turns(log.samples[0])] == ["[apple]"]
    assert "[apple]" not in server.bodies[0]["messages"][0]["content"]


def test_all_registered_environments_are_there_and_those_of_ones_own(run):
    from agentsgym.envs import registered
    from agentsgym.integrations.inspect.task import TASKS

    assert set(TASKS) == {*registered(), "env"}
    task = TASKS["env"](path="helpers.CountdownEnv", tasks="train", bonus=0.5)
    (sample,) = run(task, lambda messages: "a", limit=1).samples
    assert sample.scores["reward"].value == 0.5


def test_the_script_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path))
    page = ROOT / "docs/integrations/openenv-verifiers-inspect.md"
    script = blocks(page.read_text(encoding="utf-8"), "python")[-1]
    exec(script, {})
    (log,) = tmp_path.glob("*.eval")
    assert len(read_eval_log(str(log)).samples) == 2
