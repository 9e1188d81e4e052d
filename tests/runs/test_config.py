"""Run configurations: presets, files, overrides, and the errors for what is wrong."""

import pytest

from agentsgym.envs import ConfigError
from agentsgym.runs import load_config, load_run, merge, parse_config, parse_overrides, presets
from agentsgym.runs.from_config import make_env, train_settings
from agentsgym.runs.rehearsal import on_any_machine
from agentsgym.runs.sources import load_yaml
from agentsgym.runs.trust import trusted


def test_overrides_are_yaml_values():
    overrides = parse_overrides(
        ["seed=1", "train.learning_rate=1e-4", "env_config.hints=3", "eval.temperature=.5",
         "train.stop_strings=[a, 2e3]", "train.use_cpu=true", "description=a=b", "max_seconds="]
    )  # fmt: skip
    assert overrides == {
        "seed": 1,
        "train.learning_rate": 1e-4,
        "env_config.hints": 3,
        "eval.temperature": 0.5,
        "train.stop_strings": ["a", 2000.0],
        "train.use_cpu": True,
        "description": "a=b",
        "max_seconds": None,
    }


@pytest.mark.parametrize("wrong", ["seed", "=1", "a..b=1", "a b=1"])
def test_what_is_no_override_is_named(wrong):
    with pytest.raises(ConfigError, match="is not KEY=VALUE"):
        parse_overrides([wrong])
    with pytest.raises(ConfigError, match="value of train is not YAML"):
        parse_overrides(["train={"])


def test_merge_sets_dotted_keys_and_leaves_the_base_alone():
    base = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merge(base, {"a.b": 9, "e.f.g": 1}) == {
        "a": {"b": 9, "c": 2}, "d": 3, "e": {"f": {"g": 1}}
    }  # fmt: skip
    assert base == {"a": {"b": 1, "c": 2}, "d": 3}
    with pytest.raises(ConfigError, match="d is 3, which has no keys"):
        merge(base, {"d.x": 1})


def test_yaml_numbers_without_a_point():
    assert load_yaml("a: 1e-4\nb: -2E5\nc: 1e\nd: '1e4'", "x") == {
        "a": 1e-4, "b": -2e5, "c": "1e", "d": "1e4"
    }  # fmt: skip
    with pytest.raises(ConfigError, match="must hold a mapping"):
        load_yaml("- 1", "x.yaml")


def test_only_true_and_false_are_booleans():
    assert load_yaml("{a: no, b: Yes, c: off, d: 'n', e: false, f: True, g: null}", "x") == {
        "a": "no", "b": "Yes", "c": "off", "d": "n", "e": False, "f": True, "g": None
    }  # fmt: skip
    settings = parse_overrides(["env=TwentyQuestions", "max_seconds=1", "train.eval_strategy=no"])
    assert train_settings(parse_config(merge({"name": "x"}, settings))).eval_strategy == "no"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "env is missing"),
        ({"env": "E", "tran": {}}, "unknown key 'tran'; did you mean 'train'"),
        ({"env": "E", "eval": {"rollout": 1}}, r"'eval.rollout'; did you mean .*'eval.rollouts'"),
        ({"env": "E", "eval": 3}, "eval must be a mapping, got 3"),
        ({"env": "E", "seed": -1}, "seed .*, got -1"),
        ({"env": "E", "name": "a/b"}, "name "),
        ({"env": "E", "train": {"seed": 1}}, "unknown key 'train.seed'; set seed"),
    ],
)
def test_every_wrong_setting_is_named(data, message):
    with pytest.raises(ConfigError, match=message):
        parse_config(data)


def test_every_preset_is_valid():
    assert "quickstart" in presets()
    for name in presets():
        config = load_config(name)
        assert config.name == name and config.description
        assert train_settings(on_any_machine(config)).seed == config.seed
        make_env(config)
        known = config if config.warm_start.source else load_config(name, {"model": "tiny"})
        known.warm_start_settings()


def test_a_configuration_is_read_back_as_it_was(tmp_path):
    config = load_config("quickstart", {"seed": 3, "train.learning_rate": 1e-5})
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "config.yaml").write_text(config.to_yaml())
    again = load_run(directory)
    assert again.directory == directory
    assert again == config.model_copy(update={"output_dir": directory})


def test_where_a_run_goes(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("env: TwentyQuestions")
    assert str(load_config(str(path)).directory) == "runs/mine"
    assert str(load_config(str(path), {"output_dir": "x/y"}).directory) == "x/y"
    with pytest.raises(ConfigError, match=r"neither a file nor a preset; presets: .*quickstart"):
        load_config("nowhere.yaml")
    with pytest.raises(ConfigError, match="holds no run to resume"):
        load_run(tmp_path)


def test_trainer_settings():
    base = {"env": "TwentyQuestions", "seed": 4}
    train = {"max_steps": 3, "num_generations": 4}
    settings = train_settings(parse_config(base | {"train": train}))
    assert (settings.max_steps, settings.seed, settings.logging_steps) == (3, 4, 1)
    assert settings.output_dir == "runs/run/checkpoints" and settings.report_to == []
    with pytest.raises(ConfigError, match="nothing ends this run"):
        train_settings(parse_config(base))
    with pytest.raises(ConfigError, match=r"'train.learning_rat'; did you mean .*learning_rate'"):
        train_settings(parse_config(base | {"train": {"max_steps": 1, "learning_rat": 1}}))
    with pytest.raises(ConfigError, match="train: loss_type must be"):
        train_settings(parse_config(base | {"train": {"max_steps": 1, "loss_type": "bnpo"}}))


def timed(**train):
    base = {"env": "TwentyQuestions", "max_seconds": 60}
    return train_settings(parse_config(base | {"train": train}))


def test_a_schedule_needs_the_number_of_steps():
    """Of a run that only time limits, the rate would fall over a million steps."""
    assert timed().lr_scheduler_type == "constant"
    assert timed(warmup_steps=5).lr_scheduler_type == "constant_with_warmup"
    assert timed(lr_scheduler_type="inverse_sqrt").lr_scheduler_type == "inverse_sqrt"
    assert timed(max_steps=9).lr_scheduler_type == "linear"
    assert timed(num_train_epochs=2).lr_scheduler_type == "linear"
    for train in (
        {"lr_scheduler_type": "linear"}, {"lr_scheduler_type": "cosine"},
        {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 0.1},
        {"save_steps": 0.25}, {"eval_strategy": "steps", "eval_steps": 0.5},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=rf"{list(train)[-1]}=.* depends on the number of"):
            timed(**train)


def test_the_named_environment_may_be_imported_and_no_other():
    assert trusted(parse_config({"env": "TwentyQuestions"})) is False
    assert trusted(parse_config({"env": "my.module.Env"})) == ["my.module"]
    given = {"env": "my.module.Env", "train": {"trust": True}}
    assert trusted(parse_config(given)) is True


def test_one_text_is_a_list_of_one_never_its_letters():
    train = {"stop_strings": "abc", "trust": "digit"}
    config = parse_config({"env": "E", "train": train})
    assert config.train.given == {name: [value] for name, value in train.items()}
    assert trusted(config) == ["digit"]
    with pytest.raises(ConfigError, match=r"^train\.stop_strings\.0 must be"):
        parse_config({"env": "E", "train": {"stop_strings": [2000.0]}})


@pytest.mark.parametrize(
    ("name", "model"), [("tiney", "tiny"), ("builtin:quikstart", "builtin:quickstart")]
)
def test_a_model_of_ours_that_is_misspelled_is_named_without_asking_a_hub(name, model, monkeypatch):
    monkeypatch.setattr("agentsgym.runs.weights.urlopen", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(ConfigError, match=f"no model '{name}'; did you mean '{model}'"):
        train_settings(load_config("quickstart", {"model": name}))
