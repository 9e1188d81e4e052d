"""Which engine samples: every combination of settings works from the command line or is refused."""

import json
import shutil
import subprocess
import sys
import time

import pytest
import yaml

from agentsgym.generation import EmbeddedEngine
from completions_server import CompletionsServer

KEY = "sk-8f2c91aa77"


@pytest.fixture
def vllm(tiny_llama, chat_tokenizer):
    server = CompletionsServer(EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=64))
    yield server
    server.close()


def figures(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


BANDIT = ("--env", "Bandit", "--rollouts", "4")
DIGIT = ("--env", "digit.DigitEnv", "--rollouts", "4", "--json")


def test_eval_asks_a_chat_endpoint(invoke, serve, monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    server = serve(key=KEY)
    command = ("eval", "chat:some-model", *BANDIT, f"engine.urls={server.url}", "--json")
    evaluation = figures(invoke(*command, "engine.key_env=SOME_KEY"))
    assert (evaluation["rollouts"], evaluation["failures"]) == (4, 0)
    bodies = server.bodies
    assert {body["model"] for body in bodies} == {"some-model"}
    assert {body["max_tokens"] for body in bodies} == {512}
    assert {body["temperature"] for body in bodies} == {1.0}
    named = (*command, "engine.served_model=other", "engine.key_env=SOME_KEY")
    figures(invoke(*named, "--max-action-tokens", "9", "--temperature", "0"))
    last = server.bodies[-1]
    assert (last["model"], last["max_tokens"], last["temperature"]) == ("other", 9, 0.0)


@pytest.mark.clock
@pytest.mark.parametrize(
    "command", [("eval", "chat:m", *BANDIT), ("play", "Bandit", "--agent", "chat:m")]
)
def test_an_address_where_nothing_answers_is_noticed_at_once(invoke, command):
    started = time.monotonic()
    result = invoke(*command, "engine.urls=http://127.0.0.1:9")
    assert result.exit_code == 1 and "nothing answers at" in result.stderr, result.output
    assert "http://127.0.0.1:9" in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert time.monotonic() - started < 10


def test_no_key_is_sent_that_was_not_named_and_none_is_shown(invoke, serve, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = serve(key=KEY)
    command = ("eval", "chat:m", *BANDIT, f"engine.urls={server.url}")
    result = invoke(*command)
    assert result.exit_code == 1
    assert "every rollout failed" in result.stderr and "key_env" in result.stderr
    monkeypatch.delenv("SOME_KEY", raising=False)
    result = invoke(*command, "engine.key_env=SOME_KEY")
    assert result.exit_code == 2 and "SOME_KEY" in result.stderr
    monkeypatch.setenv("SOME_KEY", "wrong-4711-key")
    wrong = invoke(*command, "engine.key_env=SOME_KEY")
    assert "wrong-4711-key" not in wrong.output and KEY not in wrong.output


def test_a_chat_evaluation_needs_no_torch(serve):
    server = serve()
    code = (
        "import sys; from agentsgym.cli import main\n"
        f"sys.argv = ['agentsgym', 'eval', 'chat:m', *{BANDIT!r}, 'engine.urls={server.url}']\n"
        "try: main()\n"
        "except SystemExit as end: print('ended', end.code, {'torch', 'trl'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "ended 0 set()" in done.stdout, done.stdout + done.stderr


def test_the_settings_of_an_endpoint_are_those_of_chat_models(invoke, workplace, serve):
    """Where none is named they are those of the first model that is no scripted agent."""
    server = serve(say=lambda _: "7")
    command = ("eval", "model", *DIGIT, "--vs", "chat:m", f"engine.urls={server.url}")
    report = figures(invoke(*command))
    assert report["evaluations"][1]["win_rate"] == 1.0 and len(server.bodies) == 4
    turned = invoke("eval", "agent:random", *BANDIT, "--vs", "tiny", f"engine.urls={server.url}")
    assert "is made by a training" in turned.stderr


def test_a_server_of_another_model_is_not_evaluated(invoke, workplace, vllm):
    result = invoke("eval", "model", *DIGIT, f"engine.urls={vllm.url}")
    assert result.exit_code == 1
    assert "serves no model 'model', but tiny" in result.stderr
    assert "engine.served_model" in result.stderr
    assert vllm.completions == 0


def test_play_shows_what_a_chat_model_sees_and_says(invoke, serve):
    server = serve(say=lambda _: "[3]")
    result = invoke("play", "Bandit", "--agent", "chat:m", f"engine.urls={server.url}")
    assert result.exit_code == 0, result.output
    assert "[3]" in result.stdout and "The agent lost after" in result.stdout
    assert server.bodies[0]["messages"][-1]["content"].strip().splitlines()[0] in result.stdout


def test_the_seed_of_play_draws_what_the_model_says(invoke, workplace):
    outputs = {}
    for seed in ("0", "1", "0"):
        result = invoke("play", "digit.DigitEnv", "--agent", "model", "--seed", seed)
        assert result.exit_code == 0 and "The agent" in result.stdout, result.output
        assert outputs.setdefault(seed, result.stdout) == result.stdout
    assert outputs["0"] != outputs["1"]


def test_a_run_directory_plays_as_it_was_trained(invoke, workplace):
    """With its cap on actions, and from its newest checkpoint if training is not finished."""
    run = workplace / "unfinished"
    shutil.copytree(workplace / "model", run / "checkpoints" / "checkpoint-2")
    (run / "checkpoints" / "checkpoint-2" / "trainer_state.json").write_text("{}")
    text = (
        (workplace / "toy.yaml").read_text().replace("max_action_tokens: 6", "max_action_tokens: 1")
    )
    (run / "config.yaml").write_text(text)
    command = ("play", "digit.DigitEnv", "--temperature", "0", "--agent")
    long, short = invoke(*command, "model"), invoke(*command, "unfinished")
    assert short.exit_code == long.exit_code == 0, short.output
    assert len(short.stdout) < len(long.stdout)


def test_a_run_directory_plays_the_game_of_its_run_or_another(invoke, workplace):
    """Its settings of the environment hold in its own environment only."""
    run = workplace / "trained"
    shutil.copytree(workplace / "model", run / "model")
    (run / "config.yaml").write_text(
        "env: Bandit\nenv_config: {arms: 2}\nmodel: model\ntrain: {max_action_tokens: 2}\n"
    )
    first = {
        name: invoke("play", name, "--agent", "trained").stdout.splitlines()[0]
        for name in ("Bandit", "Mastermind")
    }
    assert "red or green." in first["Bandit"] and "Find the code" in first["Mastermind"]
    given = invoke("play", "Bandit", "--agent", "trained", "env_config.arms=3")
    assert "red, green or blue." in given.stdout
    other = invoke("eval", "trained", "--env", "Mastermind", "--rollouts", "2")
    assert other.exit_code == 0, other.output


@pytest.mark.parametrize(
    "command",
    [["eval", "model", *BANDIT, "--rollouts", "2"], ["play", "Bandit", "--agent", "model"]],
)
def test_a_template_option_that_the_template_does_not_read_is_reported(
    invoke, workplace, command, caplog
):
    assert invoke(*command, "model.chat_template_kwargs={enable_thinkin: false}").exit_code == 0
    assert "does not read these options, so they have no effect: 'enable_thinkin'." in caplog.text
    caplog.clear()
    assert invoke(*command).exit_code == 0 and "does not read" not in caplog.text
    scripted = ["agent:random" if word == "model" else word for word in command]
    result = invoke(*scripted, "model.chat_template_kwargs={enable_thinking: false}")
    assert "chat_template_kwargs: no effect" in " ".join(result.stderr.split())


URL = "http://127.0.0.1:9"
REFUSED = {
    "chat at several addresses": (
        ["eval", "chat:m", *BANDIT, f"engine.urls=[{URL}, {URL}]"], "one endpoint, got 2",
    ),
    "an agent without an engine": (
        ["eval", "agent:random", *BANDIT, f"engine.urls={URL}"], "has no engine, so engine.urls",
    ),
    "tiny at a server": (["eval", "tiny", *BANDIT, f"engine.urls={URL}"], "made by a training"),
    "play, without an agent": (["play", "Bandit", f"engine.urls={URL}"], "has no effect"),
    "play, without an address": (["play", "Bandit", "--agent", "chat:m"], "needs engine.urls"),
    "training a chat model": (["train", "run.yaml", "model=chat:m"], "no weights here to train"),
    "training with TRL's vLLM": (["train", "run.yaml", "train.use_vllm=true"], "engine.urls"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_work_is_refused_with_a_sentence(invoke, tmp_path, monkeypatch, name):
    arguments, message = REFUSED[name]
    monkeypatch.chdir(tmp_path)
    run = {"env": "Bandit", "model": "builtin:quickstart", "train": {"max_steps": 1}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    result = invoke(*arguments)
    assert result.exit_code in (1, 2), result.output
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert message in result.stderr and "unexpected" not in result.stderr


def test_the_servers_of_a_strangers_run_are_not_asked(invoke, workplace, vllm):
    directory = workplace / "theirs"
    directory.mkdir()
    (workplace / "model").rename(directory / "model")
    section = {"urls": [vllm.url]}
    train = {"trust": ["digit"]}
    settings = {"env": "digit.DigitEnv", "model": "model", "train": train, "engine": section}
    (directory / "config.yaml").write_text(yaml.safe_dump(settings))
    result = invoke("eval", "theirs", *DIGIT)
    assert figures(result)["failures"] == 0 and "are not used" in result.stderr
    result = invoke("train", "--resume", "theirs")
    assert result.exit_code == 2 and f'engine.urls=["{vllm.url}"]' in result.stderr
    assert vllm.completions == 0 and vllm.loaded == []
    named = (f"engine.urls={vllm.url}", "engine.served_model=tiny")
    assert figures(invoke("eval", "theirs", *DIGIT, *named))["failures"] == 0
    assert vllm.completions > 0
