"""A chat endpoint answers the questions of Twenty Questions."""

import json
from pathlib import Path

import pytest

from agentsgym import make
from agentsgym.envs import ConfigError, EnvPool
from agentsgym.generation.settings import MissingKey
from agentsgym.runs import load_config, load_run, train_run
from agentsgym.runs.files import read_rollouts, read_summary
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
    "eval.rollouts": 4,
    "eval.rollouts_per_task": 1,
    "signal_check": False,
    "threads": 1,
    "max_seconds": None,
}
QUESTIONS = ("--env", "TwentyQuestions", "env_config.table=quickstart",
             "env_config.max_steps_per_episode=4")  # fmt: skip


@pytest.fixture
def serve(serve):
    """The same, whose servers say "No." """
    return lambda **options: serve(**({"say": lambda _: "No."} | options))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Makes the quickstart in small, with an answerer, in an empty current directory."""
    monkeypatch.chdir(tmp_path)

    def make(url: str, **more):
        answerer = {"env_config.answerer": {"urls": [url], "served_model": "judge"}}
        return load_config("quickstart", SMALL | answerer | {"output_dir": "asked"} | more)

    return make


def named(server, model="judge") -> tuple[str, str]:
    return f"env_config.answerer.urls=[{server.url}]", f"env_config.answerer.served_model={model}"


def test_a_run_asks_the_endpoint_in_training_and_evaluation(serve, run, invoke):
    server, notes = serve(), Notes()
    summary = train_run(run(server.url), progress=notes)
    assert (summary.status, summary.steps) == ("finished", 2)
    assert summary.before.failures == summary.after.failures == 0
    assert summary.before.regret is None  # the best play would have to ask
    assert {body["model"] for body in server.bodies} == {"judge"}
    assert {body["temperature"] for body in server.bodies} == {0.0}
    for phase in ("before", "train", "after"):
        questions = [
            step.info for r in read_rollouts("asked", phase) for e in r.episodes for step in e.steps
            if "answer" in step.info
        ]  # fmt: skip
        assert questions and {info["answer"] for info in questions} == {"No"}
    stored, asked = load_run(Path("asked")), len(server.bodies)
    assert stored.env_config["answerer"]["urls"] == [server.url]

    result = invoke("eval", "asked", "--rollouts", "2", "--json")
    assert result.exit_code == 2 and "env_config.answerer.urls=" in result.stderr
    result = invoke("eval", "asked", "env_config.answerer=null", "--rollouts", "2", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["regret"] is not None and len(server.bodies) == asked
    for how in (named(server), ["--trust"]):
        result = invoke("eval", "asked", *how, "--rollouts", "2", "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["regret"] is None and len(server.bodies) > asked


def test_each_question_about_a_secret_is_asked_once(serve):
    server = serve()
    env = make("TwentyQuestions", env_config=_asks(server.url))
    env.run_trial([{"solution": "cat", "seed": 0}] * 8, env.optimal_agent())
    pairs = [(b["messages"][0]["content"], b["messages"][1]["content"]) for b in server.bodies]
    assert pairs and len(set(pairs)) == len(pairs)


def test_a_lost_answer_ends_its_session_and_not_the_run(serve, run):
    server = serve(fault=lambda number: 400 if number == 2 else None)
    assert train_run(run(server.url)).status == "finished"
    played = [r for phase in ("before", "train", "after") for r in read_rollouts("asked", phase)]
    failed = [rollout for rollout in played if rollout.failed]
    assert 1 <= len(failed) <= 4
    assert all(f"EndpointError: {server.url}" in rollout.error for rollout in failed)
    assert all("HTTP 400" in rollout.error for rollout in failed)


def test_an_endpoint_that_is_not_there_ends_the_run_before_it_trains(run):
    with pytest.raises(RuntimeError, match=r"nothing answers at http://127.0.0.1:9/v1"):
        train_run(run("http://127.0.0.1:9"))
    summary = read_summary(Path("asked/summary.json"))
    assert summary.status == "failed" and "nothing answers" in summary.error
    assert summary.before is None


def _asks(url, **more):
    answerer = {"urls": [url], "served_model": "judge"} | more
    return {"table": "quickstart", "max_steps_per_episode": 4, "answerer": answerer}


def test_a_row_names_an_endpoint_only_if_the_program_did():
    row = {"env_class_path": "TwentyQuestions", "env_config": _asks("http://x"), "task_data": {}}
    with pytest.raises(ConfigError, match=r"env_config\.answerer: a row may only repeat"):
        EnvPool().get(row)
    env = make("TwentyQuestions", env_config=_asks("http://own"))
    rows = env.get_train_dataset()
    assert EnvPool().get(rows[0]).config.answerer.urls == ["http://own"]


def test_scripted_agents_and_people_ask_it_too(serve, invoke, tmp_path, monkeypatch):
    server = serve(say=lambda messages: "Yes" if "outdoors" in messages[-1]["content"] else "No")
    command = ("eval", "agent:optimal", *QUESTIONS, *named(server), "--rollouts", "3", "--json")
    result = invoke(*command, "--output", str(tmp_path / "saved"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["failures"] == 0 and len(server.bodies) >= 3
    again = (*command[:-3], *named(server, "other"), "--rollouts", "3", "--json")
    other = invoke(*again, "--output", str(tmp_path / "saved"))
    assert other.exit_code == 2 and "answerer.served_model is 'judge'" in other.stderr

    lines = iter(["Is it found outdoors?", "[no such thing]"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    played = invoke("play", *QUESTIONS[1:], *named(server))
    assert played.exit_code == 0, played.output
    assert "Yes. Turns left: 3." in played.stdout
    assert server.bodies[-1]["messages"][-1]["content"] == "Is it found outdoors?"


def test_sessions_do_not_wait_for_each_others_answers():
    assert make("TwentyQuestions", env_config=_asks("http://x")).blocking
    assert not make("TwentyQuestions").blocking


def test_a_missing_key_is_named(monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(MissingKey, match="JUDGE_KEY"):
        make("TwentyQuestions", env_config=_asks("http://x", key_env="JUDGE_KEY"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"information_reward": 0.1}, r"information_reward counts the table's"),
        ({"answerer": {"served_model": "m"}}, r"answerer.urls is missing"),
        ({"answerer": {"urls": ["a", "b"], "served_model": "m"}}, r"answerer.urls .* at most 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_sentence(change, message):
    with pytest.raises(ConfigError, match=message):
        make("TwentyQuestions", env_config=_asks("http://127.0.0.1:9") | change)
