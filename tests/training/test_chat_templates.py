"""TRL's training templates in place of those that rewrite history."""

import sys
from pathlib import Path

import pytest

from agentsgym import ScriptedAgent
from agentsgym.training import GRPOEnvConfig
from agentsgym.training.chat_templates import template_options
from helpers import CHATML, CountdownEnv, build_tokenizer

sys.path.append(str(Path(__file__).parents[1] / "tokens"))
from chat_tokenizers import template, tokenizer_for


def rows_with(choice):
    tokenizer = tokenizer_for(template("qwen3"))
    env = CountdownEnv(tokenizer)
    env.set_template_options(template_options(tokenizer, choice, {}))
    agent = ScriptedAgent(["<think>\na\n</think>\n\nNo."] * 3)
    return len(env.run_trial([{"rewards": [0.0, 0.0, 1.0]}], agent).rows)


def test_a_training_template_keeps_thoughts_and_so_one_row():
    assert (rows_with("own"), rows_with("training")) == (3, 1)


def test_arguments_given_beside_it_stay():
    tokenizer = tokenizer_for(template("qwen3"))
    options = template_options(tokenizer, "training", {"enable_thinking": False})
    assert options.keys() == {"enable_thinking", "chat_template"}
    assert template_options(tokenizer, "own", {"x": 1}) == {"x": 1}


def test_a_template_that_trl_does_not_know_is_refused():
    with pytest.raises(ValueError, match="TRL brings no training template"):
        template_options(build_tokenizer(CHATML), "training", None)
    with pytest.raises(ValueError, match="no chat template"):
        template_options(build_tokenizer(None), "training", None)


def test_another_choice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="chat_template must be one of own, training"):
        GRPOEnvConfig(output_dir=str(tmp_path), chat_template="trl", report_to=[])
