"""Each setting is used or refused with a sentence; none is ignored."""

import dataclasses
import json
import math
import pickle
import re
import runpy
import typing
from pathlib import Path

import pytest
import torch
import yaml
from transformers import HfArgumentParser
from trl import GRPOConfig, TrlParser

from agentsgym.training import GRPOEnvConfig
from agentsgym.training.settings import OwnSettings
from agentsgym.training.trl_settings import BELONGS_TO, REFUSED

ROOT = Path(__file__).parents[2]
OF_TRL = {field.name: field for field in dataclasses.fields(GRPOConfig)}
OURS = OwnSettings.model_fields
HINTS = typing.get_type_hints(GRPOEnvConfig)
SERVERS = {"urls": ["http://a:1", "http://b:2"], "key_env": "SOME_KEY"}

# Values other than the default that the type does not give, as one writes them on a command line.
WRITTEN = {
    "advantage_estimator": (["rloo"], "rloo"),
    "advantage_options": (['{"scale_rewards": "none"}'], {"scale_rewards": "none"}),
    "curriculum": (["family"], "family"),
    "off_policy_masks": (
        ['{"icepop": [0.5, 5], "dppo": 0.2}'],
        {"icepop": [0.5, 5], "dppo": [0.2]},
    ),
    "stop_strings": (["\n", "."], ["\n", "."]),
    "teacher_key_env": (["TEACHER_KEY"], "TEACHER_KEY"),
    "teacher_model": (["a/teacher"], "a/teacher"),
    "trust": (["my.envs", "your.envs"], ["my.envs", "your.envs"]),
}
SECTIONS = {"engine", "ray"}


@pytest.fixture
def config(tmp_path):
    """Returns a function that makes a configuration; options are its fields."""
    return lambda **options: GRPOEnvConfig(
        **({"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none"} | options)
    )


def kinds(name):
    """The types that a field's hint allows."""
    return set(typing.get_args(HINTS[name])) or {HINTS[name]}


def written(name):
    """A value of one of our settings other than its default, in the words of a command line."""
    if name in WRITTEN:
        return WRITTEN[name]
    default = OURS[name].default
    if typing.get_origin(HINTS[name]) is typing.Literal:
        value = next(choice for choice in kinds(name) if choice != default)
    else:
        value = (
            not default
            if bool in kinds(name)
            else (default or 0) + (0.5 if float in kinds(name) else 1)
        )
    return [str(value)], value


def another_value(name):
    """A value of a field that is not its default."""
    kind, default = kinds(name), OF_TRL[name].default
    if bool in kind:
        return not default
    if kind & {int, float}:
        return 0.5 if float in kind and default != 0.5 else (default or 0) + 1
    return [1.0] if "list" in str(HINTS[name]) else {"a": 1} if "dict" in str(kind) else "other"


@pytest.mark.parametrize("name", sorted(REFUSED.keys() & OF_TRL.keys()))
def test_a_refused_setting_names_itself_and_says_why(config, name):
    with pytest.raises(ValueError, match=f"{name}=") as caught:
        config(**{name: another_value(name)})
    assert REFUSED[name] in str(caught.value)


@pytest.mark.parametrize("name", [name for name in OF_TRL if name.startswith("vllm_")])
def test_trls_own_vllm_is_refused_with_the_way_that_works(config, name):
    with pytest.raises(ValueError, match=rf"{name}=.*(engine\.urls|sampler_)"):
        config(**{name: another_value(name)})


@pytest.mark.skipif(
    "activation_checkpointing_kwargs" not in HINTS, reason="the page has the newest TRL's fields"
)
def test_the_page_is_made_of_the_settings():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    made = runpy.run_path(str(ROOT / "scripts" / "settings_page.py"))["settings_page"]()
    assert page == made, "run python scripts/docs_tables.py"
    assert all(f"| `{name}` |" in page for name in OURS.keys() - SECTIONS)
    assert "| `engine.urls` |" in page and "| `warm_start.model.layers` |" in page


NUMBERS = [
    name
    for name, hint in HINTS.items()
    if hint in (int, float) and name not in REFUSED and not name.startswith("vllm_")
]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_finite_numbers(config, name):
    wrong = [math.nan, "3", True, *([1.5] if HINTS[name] is int else [math.inf])]
    for value in wrong:
        with pytest.raises(ValueError, match=rf"^{name} must be .*, got {value!r}"):
            config(**{name: value})


@pytest.mark.parametrize(
    "name",
    [name for name, hint in HINTS.items() if hint is bool and name not in REFUSED],
)
def test_yes_and_no_are_booleans(config, name):
    with pytest.raises(ValueError, match=name):
        config(**{name: "yes"})


def test_values_that_the_hints_of_transformers_leave_out(config):
    assert config(fsdp="full_shard", gradient_checkpointing=False).fsdp is True
    assert config(chat_template_kwargs='{"a": 1}').chat_template_kwargs == {"a": 1}
    assert config(scale_rewards=False).scale_rewards == "none"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler_cap": 0}, "sampler_cap must be greater than 0, got 0"),
        ({"max_action_tokens": 10**9}, "max_action_tokens must be less than"),
        ({"temperature": 0}, "temperature"),
        ({"adam_beta2": 1.0}, "adam_beta2"),
        ({"ratio_scope": "word"}, "ratio_scope must be 'token', 'step' or 'rollout', got 'word'"),
        ({"advantage_options": {"gamma": math.nan}, "advantage_estimator": "step_return"},
         "'gamma' of 'step_return' must be finite"),
        ({"advantage_estimator": "trial_cv", "top_k": 5}, "top_k"),
        ({"advantage_estimator": "trial_cv", "max_staleness": 1, "engine": SERVERS},
         "max_staleness"),
        ({"max_staleness": 1, "sampler_correction": "none"}, "sampler_correction"),
        ({"branches": 3}, "branches=3 needs advantage_estimator='branch': 'grpo' would"),
        ({"branches": 2, "advantage_estimator": "branch"}, "num_generations=8 .* 2 or more times"),
        ({"off_policy_masks": {"icepop": [0, 5.0]}}, "off_policy_masks.icepop.0 must be greater"),
        ({"scale_rewards": "some"}, "scale_rewards must be 'group', 'batch', 'none'"),
        ({"advantage_options": "gamma"}, "advantage_options"),
        ({"stop_strings": [""]}, "stop_strings"),
        ({"loss_type": "bnpo"}, "loss_type"),
        ({"loss_type": "dr_grpo"}, "loss_norm_tokens"),
        ({"optim": "schedule_free_adamw"}, "schedule_free_adamw"),
        ({"accelerator_config": {"split_batches": True}}, "split_batches"),
        ({"scale_rewards": "batch", "advantage_estimator": "rloo"}, "scale_rewards"),
        ({"generation_batch_size": 16, "steps_per_generation": 1}, "does not agree"),
        ({"scale_rewards": "batch", "advantage_options": {"scale_rewards": "none"}},
         "mean the same"),
        ({"engine": {"url": "x"}}, "unknown key 'engine.url'; did you mean 'engine.urls'"),
        ({"ray": {"workers": 2}}, "engine.urls"),
        ({"ray": {"workers": 2, "resources": {"num_cpus": -1}}, "engine": SERVERS},
         "ray.resources.num_cpus"),
    ],
)  # fmt: skip
def test_a_refused_value_is_named_in_one_sentence(config, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        config(**options)
    assert "\n" not in str(caught.value)


def test_one_text_is_a_list_of_one(config):
    assert config(stop_strings="abc").stop_strings == ["abc"]
    assert config(engine={"urls": "http://a"}).engine.urls == ["http://a"]
    assert config(trust="my.envs").trust == ["my.envs"]


def test_the_sections_of_the_engine_and_of_ray(config):
    made = config(engine=SERVERS, ray={"workers": 2, "resources": {"num_cpus": 0.5}})
    assert made.engine.urls == SERVERS["urls"] and made.engine.capacity == 256
    assert (made.ray.workers, made.ray.resources) == (2, {"num_cpus": 0.5})
    assert config(engine="plain").engine.name == "plain"
    assert config(engine={"capacity": 3}).engine.capacity == 3


def changed():
    """Each of ours with another value than its default, as far as they go together, in the words
    of a command line and as it is."""
    both = {name: written(name) for name in OURS.keys() - SECTIONS}
    together = {
        "advantage_estimator": "grpo", "sampler_correction": "truncate", "branches": 0,
        "zero_signal_groups": "resample", "branch_where": "first", "replay_max_age": 4,
        "loss_type": "dr_grpo",
    }  # fmt: skip
    return both | {name: ([str(value)], value) for name, value in together.items()}


@pytest.mark.parametrize("parser", [TrlParser, HfArgumentParser])
def test_ours_are_read_from_a_command_line(tmp_path, parser):
    line = ["--output_dir", str(tmp_path), "--use_cpu"]
    for name, (words, _) in changed().items():
        line += [f"--{name}", *words]
    (made,) = parser(GRPOEnvConfig).parse_args_into_dataclasses(line)
    assert {n: getattr(made, n) for n in changed()} == {n: v for n, (_, v) in changed().items()}
    (plain,) = parser(GRPOEnvConfig).parse_args_into_dataclasses(line[:3])
    other = GRPOEnvConfig(str(tmp_path), use_cpu=True)
    assert all(getattr(plain, name) == getattr(other, name) for name in OURS)


def test_ours_are_read_from_yaml(tmp_path):
    values = {name: value for name, (_, value) in changed().items()}
    path = tmp_path / "run.yaml"
    plain = {"output_dir": str(tmp_path), "use_cpu": True, "engine": SERVERS}
    path.write_text(yaml.safe_dump(values | plain))
    (made,) = TrlParser(GRPOEnvConfig).parse_args_and_config(["--config", str(path)])
    assert {name: getattr(made, name) for name in values} == values
    assert made.engine.urls == SERVERS["urls"]
    line = ["--config", str(path), "--stop_strings", "!"]
    assert TrlParser(GRPOEnvConfig).parse_args_and_config(line)[0].stop_strings == ["!"]


def test_a_configuration_survives_being_copied_and_stored(config, tmp_path):
    made = config(
        advantage_options={"scale_rewards": "batch"},
        chat_template_kwargs={"enable_thinking": False},
        steps_per_generation=2,
        gradient_accumulation_steps=2,
        eval_rollouts=3,
        engine=SERVERS,
        trust=["my.envs"],
    )
    stored = made.to_dict()
    torch.save(made, tmp_path / "training_args.bin")
    copies = [
        GRPOEnvConfig(**json.loads(json.dumps(stored))),
        pickle.loads(pickle.dumps(made)),
        torch.load(tmp_path / "training_args.bin", weights_only=False),
        dataclasses.replace(made),
    ]
    assert all(copy.to_dict() == stored for copy in copies)
    assert dataclasses.replace(config(), max_action_tokens=5).max_action_tokens == 5


# -- settings that have an effect only with others ----------------------------------------------

# A setting, a value that is not its default, where it has no effect, and where it has one.
TABLE = [
    ("epsilon", 0.1, {"loss_type": "sapo"}, {"loss_type": "dapo"}),
    ("epsilon_high", 0.28, {"loss_type": "vespo"}, {"loss_type": "cispo"}),
    ("delta", 4.0, {"loss_type": "cispo"}, {"loss_type": "luspo"}),
    ("sapo_temperature_pos", 2.0, {}, {"loss_type": "sapo"}),
    ("sapo_temperature_neg", 2.0, {"loss_type": "grpo"}, {"loss_type": "sapo"}),
    ("vespo_k_pos", 1.0, {}, {"loss_type": "vespo"}),
    ("vespo_lambda_pos", 1.0, {}, {"loss_type": "vespo"}),
    ("vespo_k_neg", 1.0, {}, {"loss_type": "vespo"}),
    ("vespo_lambda_neg", 1.0, {"loss_type": "sapo"}, {"loss_type": "vespo"}),
    ("loss_norm_tokens", 9, {"loss_type": "grpo"}, {"loss_type": "dr_grpo"}),
    ("sampler_cap", 3.0, {"sampler_correction": "none"}, {}),
    ("max_resample_rounds", 4, {"zero_signal_groups": "drop"}, {"zero_signal_groups": "resample"}),
    ("replay_max_age", 2, {"zero_signal_groups": "drop"}, {"zero_signal_groups": "replay"}),
    ("branch_where", "even", {}, {"branches": 1, "advantage_estimator": "branch"}),
    ("min_signal_patience", 3, {"min_signal_share": 0.0}, {}),
    ("teacher_key_env", "KEY", {}, {"teacher_model": "http://teacher:8000"}),
    ("distillation", "forward", {}, {"teacher_model": "a/teacher"}),
    ("distillation_weight", 0.5, {}, {"teacher_model": "a/teacher"}),
    ("policy_gradient", False, {}, {"teacher_model": "a/teacher"}),
]  # fmt: skip


def test_the_table_has_every_such_setting():
    assert {name for name, *_ in TABLE} == BELONGS_TO.keys() - {"ray"}


@pytest.mark.parametrize(("name", "value", "without", "with_it"), TABLE)
def test_a_setting_without_effect_is_refused(config, name, value, without, with_it):
    default = getattr(config(**without), name)
    refusal = f"{name}={value!r} has an effect only {BELONGS_TO[name]}; leave it at its default, "
    with pytest.raises(ValueError, match=re.escape(refusal)):
        config(**without, **{name: value})
    config(**without, **{name: default})
    made = config(**{name: value}, **with_it)
    assert getattr(dataclasses.replace(made), name) == value
