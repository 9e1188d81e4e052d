"""The section `model` of a run file: its short form, its overrides, what is stored of it."""

from pathlib import Path

import pytest
import yaml

from agentsgym.envs import ConfigError
from agentsgym.runs import ModelConfig, load_config, load_run, merge, parse_config

LORA = {"model": {"path": "base", "revision": "v1", "lora": {"r": 4}}}


def of(model):
    return parse_config({"env": "Bandit", "model": model}).model


def test_a_string_is_the_path():
    assert of("some/model") == of({"path": "some/model"}) == ModelConfig(path="some/model")
    assert parse_config({"env": "Bandit"}).model.path == "tiny"


def test_a_key_of_the_section_is_set_where_a_preset_names_only_the_path():
    config = load_config("quickstart", {"model.lora.r": 8, "model.dtype": "bfloat16"})
    assert config.model.path == "builtin:quickstart"
    assert config.model.lora.r == 8 and config.model.lora.target_modules == "all-linear"
    assert config.model.dtype == "bfloat16"


def test_another_path_keeps_the_settings_but_the_revision_of_the_former_one():
    changed = parse_config(merge({"env": "Bandit", **LORA}, {"model": "other"})).model
    assert (changed.path, changed.revision, changed.lora.r) == ("other", None, 4)
    both = merge({"env": "Bandit", **LORA}, {"model": "other", "model.revision": "v2"})
    assert parse_config(both).model.revision == "v2"


def test_a_mapping_replaces_the_section():
    assert merge(LORA, {"model": {"path": "other"}}) == {"model": {"path": "other"}}


def test_only_the_run_s_own_section_has_a_short_form():
    assert merge({"warm_start": {"model": {"layers": 2}}}, {"warm_start.model.hidden": 8}) == {
        "warm_start": {"model": {"layers": 2, "hidden": 8}}
    }


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"pth": "x"}, "unknown key 'model.pth'; did you mean 'model.path'"),
        ({"path": "x", "lora": {"rank": 8}}, "unknown key 'model.lora.rank'"),
        ({"path": "x", "lora": {"r": 0}}, "model.lora.r: input should be greater than or equal"),
        ({"path": "x", "lora": {"target_modules": ".*"}}, "all-linear or a list of module names"),
        ({"path": "x", "lora": 8}, "model.lora must be a mapping, got 8"),
        ({"path": "x", "dtype": "int8"}, "model.dtype: input should be 'auto', 'float32'"),
        ({"path": "x", "quantization": "2bit"}, "model.quantization: input should be '4bit'"),
        ({"path": "x", "attn_implementation": "a/kernel"}, "code of the hub is never loaded"),
        ({"path": "x", "chat_template": "{{ x }}"}, "own, training or the path of a .jinja file"),
        ({"path": "x", "trust_remote_code": True}, "unknown key 'model.trust_remote_code'"),
        ({"path": ""}, "model.path: string should have at least 1 character"),
        (7, "model must be a mapping, got 7"),
    ],
)
def test_the_wrong_key_or_value_is_named(model, message):
    with pytest.raises(ConfigError) as caught:
        of(model)
    assert message in str(caught.value)


def test_what_is_stored_is_read_back_the_same(tmp_path):
    config = load_config("quickstart", {"model.lora.r": 8, "output_dir": str(tmp_path)})
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    assert load_run(tmp_path).model == config.model
    assert load_run(tmp_path, {"model.lora.r": 2}).model.lora.r == 2


def test_a_run_of_0_1_had_a_string_and_float32(tmp_path):
    (tmp_path / "config.yaml").write_text("env: Bandit\nmodel: some/model\n")
    assert load_run(tmp_path).model == ModelConfig(path="some/model", dtype="float32")


def test_our_own_small_models_are_float32_where_nothing_else_is_asked():
    assert of("tiny").precision == of("builtin:quickstart").precision == "float32"
    assert of("some/model").precision == "auto"
    assert of({"path": "tiny", "dtype": "bfloat16"}).precision == "bfloat16"
    assert of("tiny").at("runs/x/model").precision == "float32"


def test_the_summary_keeps_the_path(workplace):
    from agentsgym.runs.resume import new_summary

    config = load_config("toy.yaml", {"model.dtype": "float32"})
    assert new_summary(config).model == "model"
    assert yaml.safe_load(config.to_yaml())["model"]["path"] == str(Path("model"))
