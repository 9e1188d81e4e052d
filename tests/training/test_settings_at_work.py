"""TRL's settings that we have to carry out ourselves have their effect."""

import logging

import pytest
import torch

from agentsgym.training import GRPOEnvTrainer


def test_the_order_of_tasks_is_drawn_from_data_seed(make_trainer):
    def order(**options):
        return make_trainer(**options).tasks.generation(0)

    assert order(data_seed=1) == order(seed=1) != order(data_seed=2, seed=1)


@pytest.mark.parametrize("name", ["reward_funcs", "tools", "rollout_func", "compute_metrics"])
def test_arguments_of_trls_trainer_that_have_another_place_here(tiny_llama, name):
    with pytest.raises(TypeError, match=f"takes no {name}: "):
        GRPOEnvTrainer(tiny_llama, **{name: [len]})


def test_another_configuration_is_refused(tiny_llama, tmp_path):
    from trl import GRPOConfig

    with pytest.raises(TypeError, match="args must be a GRPOEnvConfig, got GRPOConfig"):
        GRPOEnvTrainer(tiny_llama, GRPOConfig(str(tmp_path), use_cpu=True, bf16=False))


def test_a_head_in_float32_on_a_bfloat16_model_with_tied_embeddings(
    make_trainer, tiny_llama, chat_tokenizer
):
    config = tiny_llama.config
    config.tie_word_embeddings = True
    config.initializer_range = 0.3  # so that bfloat16 rounds what it gives by more than float32
    torch.manual_seed(0)
    model = type(tiny_llama)(config).to(torch.bfloat16)
    trainer = make_trainer(model=model, cast_lm_head_to_fp32=True, max_steps=1)
    dtypes = {parameter.dtype for parameter in model.parameters()}
    assert dtypes == {torch.float32, torch.bfloat16}
    trainer.train()
    assert trainer.state.global_step == 1


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_warning_of_a_different_sampler_names_dropout(make_trainer, caplog, dropout):
    trainer = make_trainer()
    trainer.model.model.layers[0].spare = torch.nn.Dropout(dropout)
    trainer._metrics["train"]["sampler/capped_rows"].append(0.5)
    with caplog.at_level(logging.WARNING):
        trainer.log({})
    assert "sampler_cap" in caplog.text
    assert ("disable_dropout=True" in caplog.text) == (dropout > 0)
