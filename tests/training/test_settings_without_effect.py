"""A setting that has an effect only with others is refused, or named in a note, without them."""

import dataclasses
import logging
import re

import pytest

from agentsgym.tokens.template import unread_options
from agentsgym.training import GRPOEnvConfig
from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.setting_checks import BELONGS_TO, IDLE, REFUSED, notes

NEEDS = {"dr_grpo": {"loss_norm_tokens": 9}}

# A setting, a value that is not its default, where it has no effect, and where it has one.
TABLE = [
    ("epsilon", 0.1, {"loss_type": "sapo"}, {"loss_type": "dapo"}),
    ("epsilon", 0.1, {"loss_type": "cispo", "epsilon_high": 5.0}, {"loss_type": "cispo"}),
    ("epsilon_high", 0.28, {"loss_type": "vespo"}, {"loss_type": "cispo"}),
    ("delta", 4.0, {"loss_type": "cispo"}, {"loss_type": "luspo"}),
    ("sapo_temperature_pos", 2.0, {}, {"loss_type": "sapo"}),
    ("sapo_temperature_neg", 2.0, {"loss_type": "grpo"}, {"loss_type": "sapo"}),
    ("vespo_k_pos", 1.0, {}, {"loss_type": "vespo"}),
    ("vespo_lambda_pos", 1.0, {}, {"loss_type": "vespo"}),
    ("vespo_k_neg", 1.0, {}, {"loss_type": "vespo"}),
    ("vespo_lambda_neg", 1.0, {"loss_type": "sapo"}, {"loss_type": "vespo"}),
    ("loss_norm_tokens", 9, {"loss_type": "grpo"}, {"loss_type": "dr_grpo"}),
    ("ratio_scope", "step", {"loss_type": "vespo"}, {"loss_type": "vespo", "beta": 0.1}),
    ("sampler_cap", 3.0, {"sampler_correction": "none"}, {}),
    ("max_resample_rounds", 4, {"zero_signal_groups": "drop"}, {"zero_signal_groups": "resample"}),
    ("min_signal_patience", 3, {"min_signal_share": 0.0}, {}),
    ("use_bias_correction_kl", False, {}, {"beta": 0.1}),
    ("ref_model_mixup_alpha", 0.5, {"beta": 0.1}, {"beta": 0.1, "sync_ref_model": True}),
    ("ref_model_sync_steps", 5, {"beta": 0.1}, {"beta": 0.1, "sync_ref_model": True}),
    ("num_completions_to_print", 3, {}, {"log_completions": True}),
    ("log_unique_prompts", True, {}, {"log_completions": True}),
    ("eval_steps", 5, {"eval_strategy": "epoch"}, {"eval_strategy": "steps"}),
    ("eval_delay", 5, {}, {"eval_strategy": "epoch"}),
    ("save_steps", 5, {"save_strategy": "no"}, {}),
    ("hub_model_id", "me/it", {}, {"push_to_hub": True}),
    ("hub_strategy", "end", {}, {"push_to_hub": True}),
    ("hub_always_push", True, {}, {"push_to_hub": True}),
    ("hub_revision", "next", {}, {"push_to_hub": True}),
    ("activation_checkpointing_kwargs", {"use_reentrant": False},
     {"gradient_checkpointing": False}, {"activation_checkpointing": True}),
    ("gradient_checkpointing_kwargs", {"use_reentrant": False},
     {"gradient_checkpointing": False}, {}),
]  # fmt: skip
OF_REFUSED = {name for condition in REFUSED for name in condition.names} - {"ray"}
OF_IDLE = {name for condition in IDLE for name in condition.names}


@pytest.fixture
def config(tmp_path):
    """Returns a function that makes a configuration; options are its fields."""
    plain = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none"}
    return lambda **options: GRPOEnvConfig(
        **(plain | NEEDS.get(options.get("loss_type"), {}) | options)
    )


def test_the_table_has_every_such_setting():
    assert {name for name, *_ in TABLE} == OF_REFUSED | OF_IDLE == BELONGS_TO.keys() - {"ray"}
    assert not OF_REFUSED & OF_IDLE


# An older transformers lacks some.
FIELDS = {field.name for field in dataclasses.fields(GRPOEnvConfig)}
INSTALLED = [row for row in TABLE if row[0] in FIELDS]


@pytest.mark.parametrize(("name", "value", "without", "with_it"), INSTALLED)
def test_a_setting_without_effect_is_told(config, name, value, without, with_it):
    default = getattr(config(**without), name)
    told = f"{name}={value!r} has an effect only {BELONGS_TO[name]}"
    if name in OF_REFUSED:
        with pytest.raises(ValueError, match=re.escape(f"{told}; leave it at its default, ")):
            config(**without, **{name: value})
        config(**without, **{name: default})
    else:
        made = config(**without, **{name: value})
        assert notes(dataclasses.replace(made)) == notes(made)
        assert f"{told}, so here it has none" in notes(made)
    made = config(**{name: value}, **with_it)
    assert not any(note.startswith(f"{name}=") for note in notes(made))
    assert getattr(dataclasses.replace(made), name) == getattr(made, name)


@pytest.mark.parametrize("name", LOSSES)
def test_defaults_have_an_effect_or_are_left_alone(config, name):
    assert notes(config(loss_type=name)) == []


def test_a_note_is_logged_when_training_starts(make_trainer, caplog):
    with caplog.at_level(logging.WARNING):
        make_trainer(min_signal_patience=3, min_signal_share=0.0)
    assert (
        "min_signal_patience=3 has an effect only with min_signal_share above 0, so here it has "
        "none." in caplog.messages
    )


def test_an_option_that_the_chat_template_does_not_read_is_told(
    make_trainer, chat_tokenizer, caplog
):
    with caplog.at_level(logging.WARNING):
        make_trainer(chat_template_kwargs={"enable_thinkin": False})
    assert "'enable_thinkin'" in caplog.text
    own = "{{ messages }}{% if enable_thinking %}x{% endif %}"
    given = {"chat_template": own, "enable_thinking": False, "tools": None, "thinking": True}
    assert unread_options(chat_tokenizer, given) == ["thinking"]
