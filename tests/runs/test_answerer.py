"""Runs in which a chat endpoint answers the questions of Twenty Questions."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentsgym.envs import ConfigError
from agentsgym.generation.chat import EndpointError
from agentsgym.generation.settings import ChatEndpoint
from agentsgym.runs import Progress, load_config, load_run, parse_config, train_run
from agentsgym.runs.answerer import EndpointAnswerer, answering
from agentsgym.runs.dry_run import dry_run
from agentsgym.runs.files import read_rollouts, read_summary
from agentsgym.runs.from_config import make_env
from workplace import Notes

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
}
QUESTIONS = ("--env", "TwentyQuestions", "table=quickstart", "max_steps_per_episode=4")


@pytest.fixture
def serve(serve):
    """The same, whose servers say "No." """
    return lambda **options: serve(**({"say": lambda _: "No."} | options))


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
    pairs = [(b["messages"][0]["content"], b["messages"][1]["content"]) for b in server.bodies]
    assert len(set(pairs)) == len(pairs)
    assert any(f"answerer: {len(pairs)} answers of judge" in note for note in notes.notes)
    assert len(clients()) == before
    stored = load_run(Path("asked"))
    assert stored.answerer.urls == [server.url]

    result = invoke("eval", "asked", "--episodes", "2", "--json")
    assert result.exit_code == 2 and "answerer.urls=" in result.stderr
    result = invoke("eval", "asked", "answerer=null", "--episodes", "2", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["regret"] is not None
    assert len(server.bodies) == len(pairs)
    for how in (named(server), ["--trust"]):
        result = invoke("eval", "asked", *how, "--episodes", "2", "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["regret"] is None and len(server.bodies) > len(pairs)


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


def test_a_row_names_no_endpoint():
    row = {"env_config": {"answerer": {"urls": ["http://x"]}}, "env": "TwentyQuestions"}
    with pytest.raises(ConfigError, match=r"unknown key 'env_config\.answerer'"):
        make_env(parse_config(row))


def test_scripted_agents_and_people_ask_it_too(serve, invoke, tmp_path, monkeypatch):
    server = serve(say=lambda messages: "Yes" if "outdoors" in messages[-1]["content"] else "No")
    command = ("eval", "agent:optimal", *QUESTIONS, *named(server), "--episodes", "3", "--json")
    result = invoke(*command, "--output", str(tmp_path / "saved"))
    assert result.exit_code == 0, result.output
    assert "answers of judge" in result.stderr and json.loads(result.stdout)["failures"] == 0
    assert len(server.bodies) >= 3
    saved = json.loads((tmp_path / "saved/evaluation.json").read_text())
    assert saved["settings"]["answerer"] == {"urls": [server.url], "served_model": "judge"}
    other = invoke(*command, "answerer.served_model=other", "--output", str(tmp_path / "saved"))
    assert other.exit_code == 2 and "answerer.served_model is 'judge'" in other.stderr

    lines = iter(["Is it found outdoors?", "[no such thing]"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    played = invoke("play", *QUESTIONS[1:], *named(server))
    assert played.exit_code == 0, played.output
    assert "Yes. Turns left: 3." in played.stdout
    assert server.bodies[-1]["messages"][-1]["content"] == "Is it found outdoors?"


def test_a_dry_run_takes_the_answers_of_the_table(run, monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    done = dry_run(run("http://127.0.0.1:9", **{"answerer.key_env": "JUDGE_KEY"}), Progress())
    assert done.summary.status == "finished"
    assert any("JUDGE_KEY" in text for text in done.not_tried)
    with pytest.raises(ConfigError, match="answerer is only for TwentyQuestions"):
        dry_run(run("http://127.0.0.1:9", env="Bandit", env_config={}), Progress())


def test_the_connection_is_closed_also_after_an_interrupt(serve):
    answerer = EndpointAnswerer(ChatEndpoint(urls=[serve().url], served_model="m"))
    before = len(clients())
    with pytest.raises(KeyboardInterrupt), answering(SimpleNamespace(answerer=answerer), print):
        assert answerer.answer("cat", "Is it big?").text == "No"
        raise KeyboardInterrupt
    assert len(clients()) == before
    with pytest.raises(RuntimeError, match="only asked while a run plays"):
        answerer.answer("cat", "Is it small?")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env": "Bandit"}, r"answerer is only for TwentyQuestions; Bandit asks no endpoint"),
        ({"env_config": {"workers": 1}}, r"answerer asks from this process"),
        ({"env_config": {"information_reward": 0.1}}, r"information_reward counts the table's"),
        ({"answerer": {"served_model": "m"}}, r"answerer.urls is missing"),
        (
            {"answerer": {"urls": ["a", "b"], "served_model": "m"}},
            r"answerer.urls .* at most 1",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_sentence(change, message):
    answerer = {"urls": ["http://127.0.0.1:9"], "served_model": "judge"}
    with pytest.raises(ConfigError, match=message):
        make_env(parse_config({"env": "TwentyQuestions", "answerer": answerer} | change))
