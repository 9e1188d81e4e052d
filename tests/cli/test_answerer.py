"""Runs in which a chat endpoint answers the questions of Twenty Questions."""

import json
import threading
from pathlib import Path

import pytest
import yaml

from agentsgym.envs import ConfigError
from agentsgym.generation.chat import EndpointError
from agentsgym.generation.http import MissingKey
from agentsgym.generation.settings import ChatEndpoint
from agentsgym.runs import Silent, load_config, load_run, parse_config, train_run
from agentsgym.runs.answerer import EndpointAnswerer
from agentsgym.runs.dry_run import dry_run
from agentsgym.runs.files import read_rollouts, read_summary
from agentsgym.runs.from_config import make_env
from agentsgym.runs.resume import recalled_summary
from agentsgym.runs.trust import check_untrusted, own_directories
from chat_server import ChatServer

SMALL = {
    "env_config.max_steps_per_episode": 3,
    "env_config.information_reward": 0.0,
    "train.max_steps": 2,
    "train.per_device_train_batch_size": 8,
    "train.gradient_accumulation_steps": 1,
    "train.generation_batch_size": 8,
    "train.num_generations": 4,
    "train.eval_strategy": "no",
    "train.save_strategy": "no",
    "train.use_cpu": True,
    "eval.episodes": 4,
    "eval.rollouts_per_task": 1,
    "signal_check": False,
    "threads": 1,
    "max_seconds": None,
    "time_decay_to": None,
}
QUESTIONS = ("--env", "TwentyQuestions", "table=quickstart", "max_steps_per_episode=4")


class Notes(Silent):
    """Keeps the notes of a run."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def serve():
    """Returns a function that starts a server; options are ChatServer's."""
    started = []

    def start(**options):
        started.append(ChatServer(**({"say": lambda _: "No."} | options)))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Makes the quickstart in small, with an answerer, in an empty current directory."""
    monkeypatch.chdir(tmp_path)

    def make(url: str, **more):
        answerer = {"answerer.urls": [url], "answerer.served_model": "judge"}
        return load_config("quickstart", SMALL | answerer | {"output_dir": "asked"} | more)

    return make


def named(server) -> tuple[str, str]:
    return f"answerer.urls=[{server.url}]", "answerer.served_model=judge"


def clients() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "agentsgym-chat"]


def test_a_run_asks_the_endpoint_in_training_and_evaluation_and_closes_it(serve, run, invoke):
    server, notes = serve(), Notes()
    before = len(clients())
    summary = train_run(run(server.url), progress=notes)
    assert (summary.status, summary.steps) == ("finished", 2)
    assert summary.before.failures == summary.after.failures == 0
    assert summary.before.regret is None  # the best play would have to ask
    assert not any("before RL" in note for note in notes.notes)
    assert {body["model"] for body in server.bodies} == {"judge"}
    assert {body["temperature"] for body in server.bodies} == {0.0}
    for phase in ("before", "train", "after"):
        questions = [
            step.info for r in read_rollouts("asked", phase) for e in r.episodes for step in e.steps
            if "answer" in step.info
        ]  # fmt: skip
        assert questions and {info["answer"] for info in questions} == {"No"}
    asked = [(b["messages"][0]["content"], b["messages"][1]["content"]) for b in server.bodies]
    assert len(set(asked)) == len(asked)
    assert any(f"answerer: {len(asked)} answers of judge" in note for note in notes.notes)
    assert len(clients()) == before
    stored = load_run(Path("asked"))
    assert stored.answerer.urls == [server.url]
    Path("asked/summary.json").unlink()
    rebuilt = recalled_summary(stored, make_env(stored), notes.note)
    assert rebuilt.before == summary.before and len(server.bodies) == len(asked)

    own_directories().unlink()
    found = invoke("eval", "asked", "--episodes", "2", "--json")
    assert found.exit_code == 0, found.output
    assert "The endpoint that answers questions in the run is not asked" in found.stderr
    assert len(server.bodies) == len(asked)
    found = invoke("eval", "asked", *named(server), "--episodes", "2", "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["regret"] is None and len(server.bodies) > len(asked)


def test_a_lost_answer_ends_its_session_and_not_the_run(serve, run):
    server = serve(fault=lambda number: 400 if number == 2 else None)
    assert train_run(run(server.url)).status == "finished"
    played = [r for phase in ("before", "train", "after") for r in read_rollouts("asked", phase)]
    failed = [rollout for rollout in played if rollout.failed]
    assert 1 <= len(failed) <= 4
    assert all(f"EndpointError: {server.url}" in rollout.error for rollout in failed)
    assert all("HTTP 400" in rollout.error for rollout in failed)


def test_an_endpoint_that_is_not_there_ends_the_run_before_it_plays(run):
    with pytest.raises(EndpointError, match=r"nothing answers at http://127.0.0.1:9/v1"):
        train_run(run("http://127.0.0.1:9"))
    summary = read_summary(Path("asked/summary.json"))
    assert summary.status == "failed" and "nothing answers" in summary.error
    assert summary.before is None


def test_a_key_that_is_not_set_is_told_before_anything_is_written(run, monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(MissingKey, match="JUDGE_KEY"):
        train_run(run("http://127.0.0.1:9", **{"answerer.key_env": "JUDGE_KEY"}))
    assert not Path("asked").exists()


def test_a_run_of_a_stranger_asks_no_endpoint(serve, run, invoke):
    server = serve()
    directory = Path("asked")
    directory.mkdir()
    config = run(server.url, **{"answerer.key_env": "HOME"})
    (directory / "config.yaml").write_text(config.to_yaml())
    stored = load_run(directory)
    with pytest.raises(ConfigError, match=r"answerer.urls=.* answerer.key_env=HOME"):
        check_untrusted(stored, training=True)
    with pytest.raises(ConfigError, match=r"servers: answerer.key_env"):
        check_untrusted(stored, {"answerer.urls": [server.url]}, training=True)
    check_untrusted(stored, {"answerer": {}}, training=True)
    check_untrusted(stored, own=config, training=True)
    result = invoke("train", "--resume", "asked")
    assert result.exit_code == 2 and "answerer.urls" in result.stderr
    assert invoke("eval", "asked", "--episodes", "2").exit_code != 0  # it holds no model
    assert not server.bodies
    row = {"env_config": {"answerer": {"urls": [server.url]}}, "env": "TwentyQuestions"}
    with pytest.raises(ConfigError, match=r"unknown key 'env_config\.answerer'"):
        make_env(parse_config(row))


def test_scripted_agents_and_people_ask_it_too(serve, invoke, tmp_path, monkeypatch):
    server = serve(say=lambda messages: "Yes" if "outdoors" in messages[-1]["content"] else "No")
    command = ("eval", "agent:optimal", *QUESTIONS, *named(server), "--episodes", "3", "--json")
    found = invoke(*command, "--output", str(tmp_path / "saved"))
    assert found.exit_code == 0, found.output
    assert "answers of judge" in found.stderr and json.loads(found.stdout)["failures"] == 0
    asked = len(server.bodies)
    assert asked >= 3
    saved = json.loads((tmp_path / "saved/evaluation.json").read_text())
    assert saved["settings"]["answerer"] == {"urls": [server.url], "served_model": "judge"}
    other = invoke(*command, "answerer.served_model=other", "--output", str(tmp_path / "saved"))
    assert other.exit_code == 2 and "answerer.served_model is 'judge'" in other.stderr

    watched = invoke("play", *QUESTIONS[1:], *named(server), "--agent", "agent:optimal")
    assert watched.exit_code == 0 and len(server.bodies) > asked
    lines = iter(["Is it found outdoors?", "[no such thing]"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    played = invoke("play", *QUESTIONS[1:], *named(server))
    assert played.exit_code == 0, played.output
    assert "Yes. Turns left: 3." in played.stdout
    assert server.bodies[-1]["messages"][-1]["content"] == "Is it found outdoors?"


def test_a_dry_run_takes_the_answers_of_the_table(run, monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    done = dry_run(run("http://127.0.0.1:9", **{"answerer.key_env": "JUDGE_KEY"}), Silent())
    assert done.summary.status == "finished"
    assert done.exchanged["answerer"].instead == "the knowledge table"
    assert any("answerer: the endpoint is not asked" in text for text in done.not_tried)
    assert any("JUDGE_KEY" in text for text in done.not_tried)
    with pytest.raises(ConfigError, match="answerer is only for TwentyQuestions"):
        dry_run(run("http://127.0.0.1:9", env="Bandit", env_config={}), Silent())


def test_keys_in_an_address_are_not_stored(run):
    config = run("http://me:hunter2hunter2@127.0.0.1:9")
    assert "hunter2" not in config.to_yaml() and "judge" in config.to_yaml()
    with pytest.raises(ConfigError, match=r"answerer.urls.0 is masked"):
        parse_config(yaml.safe_load(config.to_yaml()))


def test_the_connection_is_closed_also_after_an_interrupt(serve):
    answerer = EndpointAnswerer(ChatEndpoint(urls=[serve().url], served_model="m"))
    with pytest.raises(KeyboardInterrupt), answerer.opened() as client:
        assert answerer.answer("cat", "Is it big?").text == "No"
        raise KeyboardInterrupt
    assert client.loop.closed
    with pytest.raises(RuntimeError, match="only asked while a run plays"):
        answerer.answer("cat", "Is it small?")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env": "Bandit"}, r"answerer is only for TwentyQuestions; Bandit asks no endpoint"),
        ({"env_config": {"workers": 1}}, r"answerer asks from this process"),
        ({"env_config": {"information_reward": 0.1}}, r"information_reward counts the table's"),
        (
            {"answerer": {"url": "http://x"}},
            r"unknown key 'answerer.url'; did you mean 'answerer.u",
        ),
        ({"answerer": {"urls": ["http://x"]}}, r"answerer.served_model is missing"),
        ({"answerer": {"served_model": "m"}}, r"answerer.urls is missing"),
        (
            {"answerer": {"urls": ["a", "b"], "served_model": "m"}},
            r"answerer.urls .* at most 1",
        ),
        ({"answerer": {"urls": ["a"], "served_model": 3}}, r"answerer.served_model must be"),
        ({"answerer": [1]}, r"answerer must be a mapping"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_sentence(change, message):
    answerer = {"urls": ["http://127.0.0.1:9"], "served_model": "judge"}
    with pytest.raises(ConfigError, match=message):
        make_env(parse_config({"env": "TwentyQuestions", "answerer": answerer} | change))
