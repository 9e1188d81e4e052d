"""A setting that has an effect only with others is refused without them."""

import dataclasses
import logging
import re

import pytest

from agentsgym.tokens.template import unread_options
from agentsgym.training import GRPOEnvConfig
from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.trl_settings import BELONGS_TO

NEEDS = {"dr_grpo": {"loss_norm_tokens": 9}}

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
    ("min_signal_patience", 3, {"min_signal_share": 0.0}, {}),
]  # fmt: skip


@pytest.fixture
def config(tmp_path):
    """Returns a function that makes a configuration; options are its fields."""
    plain = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none"}
    return lambda **options: GRPOEnvConfig(
        **(plain | NEEDS.get(options.get("loss_type"), {}) | options)
    )


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


@pytest.mark.parametrize("name", LOSSES)
def test_defaults_have_an_effect_or_are_left_alone(config, name):
    config(loss_type=name)


def test_an_option_that_the_chat_template_does_not_read_is_told(
    make_trainer, chat_tokenizer, caplog
):
    with caplog.at_level(logging.WARNING):
        make_trainer(chat_template_kwargs={"enable_thinkin": False})
    assert "'enable_thinkin'" in caplog.text
    own = "{{ messages }}{% if enable_thinking %}x{% endif %}"
    given = {"chat_template": own, "enable_thinking": False, "tools": None, "thinking": True}
    assert unread_options(chat_tokenizer, given) == ["thinking"]
