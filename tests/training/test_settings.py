"""Each setting is used, refused with a sentence, or listed as without meaning; none is ignored."""

import ast
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

import agentsgym.training
from agentsgym.training import GRPOEnvConfig
from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.setting_conditions import BELONGS_TO
from agentsgym.training.setting_parsers import limits
from agentsgym.training.setting_ranges import RANGES
from agentsgym.training.trl_settings import SETTINGS

ROOT = Path(__file__).parents[2]
OF_TRL = {field.name: field for field in dataclasses.fields(GRPOConfig)}
OURS = [field.name for field in dataclasses.fields(GRPOEnvConfig) if field.name not in OF_TRL]
FIELDS = {field.name: field for field in dataclasses.fields(GRPOEnvConfig) if field.init}
HINTS = typing.get_type_hints(GRPOEnvConfig)
NEVER_CHANGED = [name for name, setting in SETTINGS.items() if setting.verdict == "refused"]

# For each of our settings a value other than its default, as one writes it on a command line.
WRITTEN = {
    "advantage_estimator": (["rloo"], "rloo"),
    "advantage_options": (['{"scale_rewards": "none"}'], {"scale_rewards": "none"}),
    "scale_step_rewards": (["batch"], "batch"),
    "train_on": (["steps"], "steps"),
    "ratio_scope": (["rollout"], "rollout"),
    "sampler_correction": (["none"], "none"),
    "sampler_cap": (["3"], 3.0),
    "train_truncated_actions": (["false"], False),
    "zero_signal_groups": (["drop"], "drop"),
    "max_resample_rounds": (["4"], 4),
    "max_action_tokens": (["5"], 5),
    "token_records": (["2"], 2),
    "max_rollout_tokens": (["50"], 50),
    "chat_template": (["training"], "training"),
    "stop_strings": (["\n", "."], ["\n", "."]),
    "max_tokens_per_forward": (["100"], 100),
    "loss_norm_tokens": (["10"], 10),
    "engine": (["embedded"], "embedded"),
    "engine_capacity": (["7"], 7),
    "engine_urls": (["http://a:1", "http://b:2"], ["http://a:1", "http://b:2"]),
    "engine_served_model": (["base"], "base"),
    "engine_key_env": (["SOME_KEY"], "SOME_KEY"),
    "engine_launch": (["2"], 2),
    "engine_command": (["/other/bin/vllm"], "/other/bin/vllm"),
    "engine_launch_args": (["a", "b"], ["a", "b"]),
    "rollout_workers": (["2"], 2),
    "rollout_worker_resources": (['{"num_cpus": 0.5}'], {"num_cpus": 0.5}),
    "max_staleness": (["2"], 2),
    "min_signal_share": (["0.5"], 0.5),
    "min_signal_patience": (["3"], 3),
    "eval_rollouts": (["2"], 2),
    "eval_temperature": (["0"], 0.0),
    "max_bad_rows": (["3"], 3),
    "trust": (["my.envs", "your.envs"], ["my.envs", "your.envs"]),
    "allow_truncated_sampling": (["true"], True),
}

# What else must be set so that a setting is not refused as without effect.
BESIDES = {
    "loss_norm_tokens": ["--loss_type", "dr_grpo"],
    "engine_served_model": ["--engine_urls", "http://a"],
    "engine_key_env": ["--engine_urls", "http://a"],
    "engine_command": ["--engine_launch", "1"],
    "engine_launch_args": ["--engine_launch", "1"],
    "rollout_workers": ["--engine_urls", "http://a"],
    "rollout_worker_resources": ["--engine_urls", "http://a", "--rollout_workers", "1"],
}


def kinds(name):
    """The types that a field's hint allows."""
    return set(typing.get_args(HINTS[name])) or {HINTS[name]}


def numbers(kind):
    """Fields of floats, or of whole numbers only, that may be changed."""
    for name in FIELDS:
        own = kinds(name)
        if name not in NEVER_CHANGED and kind in own and (kind is float or float not in own):
            yield name


@pytest.fixture
def config(tmp_path):
    """Returns a function that makes a configuration; options are its fields."""
    return lambda **options: GRPOEnvConfig(
        **({"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none"} | options)
    )


def another_value(name):
    """A value of a field that is not its default."""
    kind, default = kinds(name), OF_TRL[name].default
    if bool in kind:
        return not default
    if kind & {int, float}:
        return 0.5 if float in kind and default != 0.5 else (default or 0) + 1
    return [1.0] if "list" in str(HINTS[name]) else {"a": 1} if "dict" in str(kind) else "other"


def test_every_setting_of_the_installed_trl_is_sorted():
    unsorted = set(OF_TRL) - set(SETTINGS)
    assert not unsorted, f"nobody has said what becomes of {sorted(unsorted)}"


@pytest.mark.parametrize("name", NEVER_CHANGED)
def test_a_refused_setting_names_itself_and_says_why(config, name):
    with pytest.raises(ValueError, match=f"{name}=") as caught:
        config(**{name: another_value(name)})
    assert SETTINGS[name].why and SETTINGS[name].why in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "ours"),
    [
        ("importance_sampling_level", "sequence", 'ratio_scope="rollout"'),
        ("mask_truncated_completions", True, "train_truncated_actions=False"),
        ("off_policy_mask_threshold", 0.5, "max_staleness"),
        ("vllm_importance_sampling_correction", False, 'sampler_correction="none"'),
        ("vllm_importance_sampling_clip_max", 2.0, "sampler_cap"),
        ("train_sampling_strategy", "sequential", "shuffle_dataset=False"),
        ("max_tool_calling_iterations", 3, "max_steps_per_episode"),
        ("use_adaptive_entropy", True, "entropy_coef"),
    ],
)
def test_a_refusal_names_our_equivalent(config, name, value, ours):
    with pytest.raises(ValueError) as caught:
        config(**{name: value})
    assert ours in str(caught.value)


def test_what_a_sentence_names_exists():
    others = {
        "max_steps_per_episode", "env_config", "use_kernels", "token_truncate", "max_new_tokens",
        "max_tokens", "stop_strings", "non_padding", "split_batches", "dispatch_batches",
        "num_steps", "activation_checkpointing", *LOSSES,
    }  # fmt: skip
    for sentence in [*(setting.why for setting in SETTINGS.values()), *BELONGS_TO.values()]:
        named = set(re.findall(r"\b[a-z]+(?:_[a-z0-9]+)+\b", sentence))
        assert named <= set(FIELDS) | others, sentence


def test_the_page_is_made_of_the_table():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    made = runpy.run_path(str(ROOT / "scripts" / "settings_page.py"))["settings_page"]()
    assert page == made, "run python scripts/settings_page.py"
    assert all(f"| `{name}` |" in page for name in FIELDS)


def names_read(path, left_out=(), of=""):
    """Attributes that a module's code reads, but for some of its functions; `of` is a pattern of
    what they are attributes of."""
    names = set()

    def visit(node):
        if isinstance(node, ast.FunctionDef) and node.name in left_out:
            return
        read = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        if read and re.search(of, ast.unparse(node.value) if of else ""):
            names.add(node.attr)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(Path(path).read_text(encoding="utf-8")))
    return names


def test_each_of_our_settings_is_read_somewhere():
    here = Path(agentsgym.training.__file__).parent
    read = names_read(here / "config.py", {"__post_init__", "_read_texts"}, of="^self$")
    for path in here.rglob("*.py"):
        read |= names_read(path, of=r"(^|[._])args$")
    read |= {name for loss in LOSSES.values() for name in loss.settings}
    # It does no more than allow what a check would forbid.
    assert set(OURS) - read <= {"allow_truncated_sampling"}


def test_each_used_setting_of_trl_is_read_by_code_that_runs():
    """A necessary condition: somebody reads it outside the methods that we replace."""
    import transformers
    import trl.trainer.grpo_trainer as trl_trainer

    replaced = {
        "_generate_and_score_completions", "_compute_loss", "training_step", "compute_loss",
        "evaluate", "prediction_step", "evaluation_loop", "predict", "_generate",
        "_generate_single_turn", "_tool_call_loop", "_get_per_token_logps_and_entropies",
        "_get_train_sampler", "_get_eval_sampler", "get_eval_dataloader",
        "_track_num_input_tokens", "_calculate_rewards", "get_high_entropy_mask",
    }  # fmt: skip
    home = Path(transformers.__file__).parent
    here = Path(agentsgym.training.__file__).parent
    names = set().union(*(names_read(path) for path in here.rglob("*.py")))
    for path in [*home.glob("train*.py"), home / "integrations" / "integration_utils.py"]:
        names |= names_read(path, replaced)
    names |= names_read(trl_trainer.__file__, replaced)
    names |= names_read(home / "integrations" / "deepspeed.py")
    names |= names_read(Path(trl_trainer.__file__).with_name("callbacks.py"))
    # Read by name: what a loss type's formula takes.
    names |= {name for loss in LOSSES.values() for name in loss.settings}
    used = {name for name, setting in SETTINGS.items() if setting.verdict == "used"}
    assert not used & set(OF_TRL) - names


@pytest.mark.parametrize("name", numbers(float))
def test_numbers_are_finite_numbers(config, name):
    for value in (math.nan, math.inf, -math.inf, "much", True):
        with pytest.raises(ValueError, match=rf"^{name} must be a finite number.*, got {value!r}"):
            config(**{name: value})


@pytest.mark.parametrize("name", numbers(int))
def test_whole_numbers_are_whole(config, name):
    for value in {1.5, math.nan, "3", True}:
        if type(value) not in kinds(name):
            with pytest.raises(ValueError, match=rf"^{name} must be a whole number.*, got"):
                config(**{name: value})


@pytest.mark.parametrize("name", [n for n, hint in HINTS.items() if n in FIELDS and hint is bool])
def test_yes_and_no_are_booleans(config, name):
    with pytest.raises(ValueError, match=name):
        config(**{name: "yes"})


def test_values_that_the_hints_of_transformers_leave_out(config):
    assert config(fsdp="full_shard", gradient_checkpointing=False).fsdp is True
    assert config(chat_template_kwargs='{"a": 1}').chat_template_kwargs == {"a": 1}
    with pytest.raises(ValueError, match="chat_template_kwargs must be a mapping, got 3"):
        config(chat_template_kwargs=3)


@pytest.mark.parametrize("name", sorted(RANGES))
def test_numbers_outside_their_range_are_refused(config, name):
    range_ = RANGES[name]
    whole = float not in kinds(name)
    outside = []
    if range_.least > -math.inf:
        outside.append(range_.least if range_.open_least else range_.least - 1)
    if range_.most < math.inf:
        outside.append(range_.most if range_.open_most else range_.most + 1)
    assert outside
    for value in outside:
        with pytest.raises(ValueError, match=f"^{name} must be a .* number"):
            config(**{name: int(value) if whole else value})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler_cap": 0}, "sampler_cap must be a finite number above 0, got 0"),
        ({"seed": 2**32}, "seed must be a whole number of at least 0 and at most 4294967295"),
        ({"learning_rate": "1e-5"}, "YAML reads 1e-5 as text"),
        ({"advantage_options": {"gamma": math.nan}, "advantage_estimator": "step_return"},
         "'gamma' of 'step_return' must be finite"),
        ({"advantage_estimator": "trial_cv", "top_k": 5, "allow_truncated_sampling": True},
         "with top_k actions are sampled with others; it would be biased"),
        ({"advantage_estimator": "trial_cv", "max_staleness": 1, "engine_urls": ["http://x"]},
         "with max_staleness actions are sampled with others"),
        ({"scale_rewards": "some"}, "scale_rewards must be one of group, batch, none"),
        ({"advantage_options": "gamma"}, "advantage_options must be a mapping"),
        ({"stop_strings": [""]}, "stop_strings must be a list of texts that are not empty"),
        ({"stop_strings": [1]}, "stop_strings must be a list of texts"),
        ({"engine_urls": 5}, "engine_urls must be a list of texts"),
        ({"num_generations": None}, "num_generations must be a whole number of at least 2"),
        ({"max_action_tokens": 8, "max_completion_length": 9}, "mean the same"),
        ({"eval_rollouts": 2, "num_generations_eval": 3}, "mean the same"),
        ({"generation_kwargs": {"num_beams": 3}}, "no 'num_beams' here; it has temperature, top_p"),
        ({"generation_kwargs": {"top_k": 3}}, "allow_truncated_sampling"),
        ({"generation_kwargs": {"temperature": 0.0}}, "temperature must be .* above 0"),
        ({"generation_kwargs": {"temperature": 0.5}, "temperature": 0.7}, "temperature is 0.7"),
        ({"optim": "schedule_free_adamw"}, "schedule_free_adamw"),
        ({"accelerator_config": {"split_batches": True}}, "split_batches"),
        ({"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 2}}}, "num_steps"),
        ({"scale_rewards": "batch", "advantage_estimator": "rloo"}, "belongs to the estimator"),
        ({"engine_urls": ["http://a"], "use_vllm": True}, "two engines"),
        ({"generation_batch_size": 16, "steps_per_generation": 1}, "does not agree"),
        ({"scale_rewards": "batch", "advantage_options": {"scale_rewards": "none"}},
         "scale_rewards='batch' and .*='none' mean the same; set one of them"),
        ({"use_vllm": True, "vllm_mode": "both"}, "vllm_mode must be one of colocate, server"),
    ],
)  # fmt: skip
def test_a_refused_value_is_told_in_one_sentence(config, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        config(**options)
    assert "\n" not in str(caught.value)


def test_one_text_is_one_stop_string(config):
    assert config(stop_strings="abc").stop_strings == ["abc"]
    assert config(engine_urls="http://a").engine_urls == ["http://a"]
    assert config(trust="my.envs").trust == ["my.envs"]


def test_two_names_of_one_setting(config):
    assert config().max_action_tokens == 64 and config().eval_rollouts == 1
    assert config(max_completion_length=12).max_action_tokens == 12
    assert config(max_action_tokens=12, max_completion_length=12).max_action_tokens == 12
    assert config(num_generations_eval=3).eval_rollouts == 3
    assert config(eval_rollouts=3, eval_strategy="steps", do_eval=True).eval_rollouts == 3


def test_generation_kwargs_become_our_settings(config):
    given = {"top_k": 5, "max_new_tokens": 7, "stop": "\n", "temperature": 0.5, "top_p": 0.9}
    made = config(generation_kwargs=given, allow_truncated_sampling=True)
    assert (made.top_k, made.max_action_tokens, made.stop_strings) == (5, 7, ["\n"])
    assert (made.temperature, made.top_p, made.generation_kwargs) == (0.5, 0.9, None)


def test_each_of_ours_is_written_in_the_tests():
    assert sorted(WRITTEN) == sorted(OURS)


@pytest.mark.parametrize("parser", [TrlParser, HfArgumentParser])
@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_each_of_ours_is_read_from_a_command_line(tmp_path, parser, name):
    words, value = WRITTEN[name]
    line = ["--output_dir", str(tmp_path), "--use_cpu", f"--{name}", *words, *BESIDES.get(name, [])]
    (made,) = parser(GRPOEnvConfig).parse_args_into_dataclasses(line)
    assert getattr(made, name) == value
    (plain,) = parser(GRPOEnvConfig).parse_args_into_dataclasses(line[:3])
    assert getattr(plain, name) == getattr(GRPOEnvConfig(str(tmp_path), use_cpu=True), name)


def test_all_of_ours_are_read_from_yaml(tmp_path):
    values = {name: value for name, (_, value) in WRITTEN.items()}
    for name in ("engine_launch", "engine_command", "engine_launch_args"):
        del values[name]  # they belong to servers that do not run yet
    values |= {"advantage_estimator": "grpo", "sampler_correction": "truncate", "engine": "vllm"}
    values["loss_type"] = "dr_grpo"
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(values | {"output_dir": str(tmp_path), "use_cpu": True}))
    (made,) = TrlParser(GRPOEnvConfig).parse_args_and_config(["--config", str(path)])
    assert {name: getattr(made, name) for name in values} == values
    line = ["--config", str(path), "--stop_strings", "!"]
    assert TrlParser(GRPOEnvConfig).parse_args_and_config(line)[0].stop_strings == ["!"]
    path.write_text("stop_strings: abc\ntrust: true\nuse_cpu: true\nlearning_rate: 1e-5\n")
    (made,) = TrlParser(GRPOEnvConfig).parse_args_and_config(["--config", str(path)])
    assert (made.stop_strings, made.trust, made.learning_rate) == (["abc"], True, 1e-5)


def test_help_names_every_setting(capsys):
    with pytest.raises(SystemExit):
        TrlParser(GRPOEnvConfig).parse_args_into_dataclasses(["--help"])
    shown = capsys.readouterr().out
    assert all(f"--{name}" in shown for name in OURS)


def test_a_configuration_survives_being_copied_and_stored(config, tmp_path):
    made = config(
        max_completion_length=9,
        num_generations_eval=2,
        generation_kwargs={"stop_strings": ["."]},
        advantage_options={"scale_rewards": "batch"},
        chat_template_kwargs={"enable_thinking": False},
        steps_per_generation=2,
        gradient_accumulation_steps=2,
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


@pytest.mark.parametrize(
    ("train", "cap", "stops"),
    [
        ({}, 64, []),
        ({"max_completion_length": 9, "stop_strings": "ab"}, 9, ["ab"]),
        ({"max_action_tokens": 8, "max_completion_length": None}, 8, []),
        ({"generation_kwargs": {"max_new_tokens": 7, "stop": ["."]}}, 7, ["."]),
    ],
)
def test_an_evaluation_reads_a_runs_limits_as_training_does(config, train, cap, stops):
    assert limits(train) == (cap, stops)
    made = config(**train)
    assert (made.max_action_tokens, made.stop_strings) == (cap, stops)
