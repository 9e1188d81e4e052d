"""A missing extra answers with the command that installs it."""

import pytest

import agentsgym
from agentsgym.envs import extras


@pytest.mark.parametrize(("name", "extra"), [("ALFWorld", "alfworld"), ("TextWorld", "textworld")])
def test_the_exact_command(monkeypatch, name, extra):
    monkeypatch.setattr(extras, "installed", lambda module: False)
    with pytest.raises(extras.MissingExtra) as caught:
        agentsgym.make(name)
    assert caught.value.command == extras.install_command(extra)
    assert caught.value.command in str(caught.value)


def test_require_imports_what_is_there_and_hides_no_errors(tmp_path, monkeypatch):
    assert extras.require("json.decoder", "x").JSONDecoder
    (tmp_path / "broken_module.py").write_text("import no_such_thing_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_thing_at_all"):
        extras.require("broken_module", "x")
    assert not extras.installed("no_such_package.part")
