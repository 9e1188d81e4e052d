"""TRL's training templates in place of those that rewrite history."""

import pytest

from agentsgym import ScriptedAgent
from agentsgym.training.chat_templates import template_options
from chat_tokenizers import template, tokenizer_for
from helpers import CHATML, DROPS_THOUGHT, CountdownEnv, build_tokenizer


def rows_with(choice):
    tokenizer = tokenizer_for(template("qwen3"))
    env = CountdownEnv(None).with_tokenizer(tokenizer, template_options(tokenizer, choice, {}))
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


def test_a_trainer_plays_with_trls_template(make_trainer, monkeypatch):
    trl = DROPS_THOUGHT + "{# trained #}"
    monkeypatch.setattr("trl.chat_template_utils.get_training_chat_template", lambda _: trl)
    trainer = make_trainer(chat_template="training")
    env = trainer.collector.envs.get(trainer.train_dataset[0])
    assert env.codec.template.source == trl
