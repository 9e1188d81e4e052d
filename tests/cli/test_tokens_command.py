"""`agentsgym tokens`: exit status, JSON, settings, errors in one line."""

import json

import pytest

from helpers import CHATML, DROPS_THOUGHT, build_tokenizer

SWITCHED = DROPS_THOUGHT.replace("'</think>' in c", "'</think>' in c and not keep")


@pytest.fixture
def tokenizers(tmp_path, monkeypatch):
    """The current directory, with directories that contain tokenizers only."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("drops", SWITCHED), ("plain", None)):
        build_tokenizer(text).save_pretrained(name)
    (tmp_path / "appends.jinja").write_text(CHATML)
    return tmp_path


def report_of(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_tokenizer_alone_is_enough(invoke, tokenizers):
    result = invoke("tokens", "drops")
    assert result.exit_code == 0, result.output
    assert "drops earlier thoughts: a new row at steps 1, 2, 3" in " ".join(result.stdout.split())
    assert "fit for training" in result.stdout and result.stderr == ""


def test_settings_of_the_model_are_those_of_an_evaluation(invoke, tokenizers):
    arguments = ("tokens", "drops", "--json")
    assert not report_of(invoke(*arguments))["append_only"]
    assert report_of(invoke(*arguments, "model.chat_template_kwargs.keep=true"))["append_only"]
    assert report_of(invoke(*arguments, "model.chat_template=appends.jinja"))["append_only"]


def test_an_environment_is_played_with_its_settings(invoke, tokenizers):
    data = report_of(invoke("tokens", "plain", "--env", "Bandit", "env_config.arms=3", "--json"))
    names = [one["name"] for one in data["conversations"]]
    assert "Bandit, plain answers" in names and not data["check"]["has_template"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("missing/tokenizer/here",), 2, "missing/tokenizer/here"),
        (("agent:random",), 2, "no tokenizer"),
        (("plain", "env_config.arms=3"), 2, "--env"),
        (("plain", "--env", "Nonesuch"), 2, "Nonesuch"),
        (("plain", "model.chat_template=training"), 2, "no chat template"),
        (("plain", "model.chat_template=missing.jinja"), 2, "missing.jinja"),
        (("plain", "model.chat_template_kwargs=3"), 2, "chat_template_kwargs"),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(invoke, tokenizers, arguments, status, message):
    result = invoke("tokens", *arguments)
    assert result.exit_code == status, result.output
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert message in result.stderr


def test_a_template_that_refuses_turns_is_status_one(invoke, tokenizers):
    refusing = "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}"
    build_tokenizer(refusing + CHATML).save_pretrained("refuses")
    result = invoke("tokens", "refuses")
    assert result.exit_code == 1 and "one only" in result.stdout
