"""`agentsgym serve` and `serve-model` before they serve; tests/integrations/with_openenv and
tests/generation/test_serve_model.py have the rest."""

import sys

import pytest
from typer.testing import CliRunner

from agentsgym.cli.app import app


def refused(*arguments, command="serve"):
    done = CliRunner().invoke(app, [command, *arguments])
    assert done.exit_code == 2, done.output
    return " ".join(done.stderr.split())


def test_without_the_package_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "openenv", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install" in refused("Bandit") and "openenv" in refused("Bandit")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Bandit", "--host", "0.0.0.0"], "others can reach the server"),
        (["Bandit", "--token-env", "NOT_SET_HERE"], "set the environment variable NOT_SET_HERE"),
        (["Bandit", "env_config.armz=3"], "unknown key 'env_config.armz'"),
        (["Nothing"], "no environment is registered as 'Nothing'"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(arguments, message):
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m", "--host", "0.0.0.0"], "others can reach the server"),
        (["m", "--key-env", "NOT_SET_HERE"], "set the environment variable NOT_SET_HERE"),
        (["m", "--dtype", "int3"], "model.dtype must be"),
        (["m", "--cache-gib", "-1"], "engine.cache_gib must be"),
        (["tiny"], "'tiny' is made by a training"),
        (["builtin:nothing"], "there is no model 'builtin:nothing'"),
    ],
)
def test_a_model_that_cannot_be_served_is_one_sentence(arguments, message):
    assert message in refused(*arguments, command="serve-model")
