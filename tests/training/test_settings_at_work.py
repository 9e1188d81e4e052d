"""TRL's settings that we have to carry out ourselves have their effect."""

import logging
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

from agentsgym.training import GRPOEnvTrainer
from agentsgym.training.loss import forest
from agentsgym.training.loss.batch import TrainRollout, TrainRow
from agentsgym.training.loss.weights import PER_TOKEN, assign_weights, count_rollouts
from agentsgym.training.metrics import completion_lines
from agentsgym.types import Episode, Rollout
from family_models import family_model
from helpers import DigitEnv
from training.cells import random_rollouts

# Says what it was asked to say before every answer.
ASKS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ word }}{% endif %}"
)


def rollouts_of(trainer):
    trainer.model.train()
    return trainer._prepare_inputs([])["rollouts"]


def test_chat_template_kwargs_reach_the_prompt(make_trainer, chat_tokenizer):
    chat_tokenizer.chat_template, before = ASKS, chat_tokenizer.chat_template
    try:
        trainer = make_trainer(chat_template_kwargs={"word": "higher"})
        (row, *_) = rollouts_of(trainer)[0].rows
    finally:
        chat_tokenizer.chat_template = before
    prompt = chat_tokenizer.decode(row.token_ids[: row.spans[0].start])
    assert prompt.endswith("assistant\nhigher")


def test_the_token_cap_of_an_action(make_trainer):
    trainer = make_trainer(max_action_tokens=2)
    spans = [span for r in rollouts_of(trainer) for row in r.rows for span in row.spans]
    assert max(span.length for span in spans) == 2


def test_the_order_of_tasks_is_drawn_from_data_seed(make_trainer):
    def order(**options):
        return make_trainer(**options).tasks.generation(0)

    assert order(data_seed=1) == order(seed=1) != order(data_seed=2, seed=1)


def visible(text):
    """The text without control characters, which a terminal would obey."""
    return re.sub("[\x00-\x08\x0b-\x1f]", lambda c: chr(0x2400 + ord(c[0])), text).replace(
        "\x7f", "\ufffd"
    )


def test_log_completions_writes_a_line_per_rollout(make_trainer, tmp_path, chat_tokenizer):
    env = DigitEnv(chat_tokenizer)
    trainer = make_trainer(
        env,
        eval_dataset=env.get_eval_dataset(),
        eval_strategy="steps",
        eval_steps=2,
        log_completions=True,
        num_completions_to_print=1,
    )
    trainer.train()
    for step, rollouts in enumerate(trainer.played.steps().values(), 1):
        table = pd.read_parquet(
            tmp_path / "out" / "completions" / f"completions_{step:05d}.parquet"
        )
        assert len(table) == len(rollouts) == 8
        assert table["reward"].tolist() == [r.final_reward for r in rollouts]
        texts = [row[0]["content"] for row in table["completion"]]
        assert texts == [visible(r.episodes[0].steps[0].action) for r in rollouts]
        assert all(row[-1]["role"] == "user" for row in table["prompt"])
    assert any(table["advantage"] != 0)


def test_the_line_of_a_failed_rollout_and_of_one_that_prints_escapes():
    (failed,) = completion_lines([Rollout("", 0, 0, "", {}, {}, (), (), "boom")], [])
    assert failed.prompt == failed.completion == [] and math.isnan(failed.reward)
    talk = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "\x1b[2J\ud800\n"}]
    episode = Episode(0, (), 1.0, 1.0, "done", written=tuple(talk))
    (line,) = completion_lines([Rollout("", 0, 0, "", {}, {}, (episode,), ())], [])
    assert (line.prompt[0]["content"], line.completion[0]["content"]) == ("?", "\u241b[2J\ufffd\n")
    assert (line.reward, line.advantage) == (1.0, 0.0)


def test_the_auxiliary_loss_of_experts_is_added_as_trl_adds_it(make_trainer, chat_tokenizer):
    options = {"vocab_size": len(chat_tokenizer), "router_aux_loss_coef": 0.02}
    trainer = make_trainer(model=family_model("qwen3_moe", **options))
    assert trainer.loss.aux_coef == 0.02
    inputs = {"rollouts": rollouts_of(trainer)}
    gate = trainer.model.model.layers[0].mlp.gate.weight
    losses, pulls = [], []
    for coefficient in (0.02, 0.0):
        trainer.loss.aux_coef = coefficient
        trainer.model.zero_grad()
        losses.append(trainer.train_micro_batch(trainer.model, inputs["rollouts"]).item())
        pulls.append(gate.grad.clone())
    (layout,) = trainer.loss.layouts(trainer.model, inputs["rollouts"])
    # The model's own auxiliary loss over the same rows, none of which shares a prefix.
    assert layout.tokens == sum(row.length for row in layout.rows)
    whole = trainer.model(**layout.inputs(torch.device("cpu")), output_router_logits=True)
    (alone,) = torch.autograd.grad(0.02 * whole.aux_loss, gate)
    assert losses[0] - losses[1] == pytest.approx(0.02 * whole.aux_loss.item(), rel=1e-4)
    torch.testing.assert_close(pulls[0] - pulls[1], alone, rtol=1e-3, atol=1e-6)
    assert trainer._metrics["train"]["aux_loss"][-1] == pytest.approx(whole.aux_loss.item())


def test_shares_of_the_auxiliary_loss_add_up_to_one():
    rollouts = [TrainRollout(r, [], not r.failed) for r in random_rollouts(6, vocabulary=50)]
    for rollout in rollouts:
        rollout.rows = [
            TrainRow.of(row, np.zeros(len(row.token_ids))) for row in rollout.played.rows
        ]
    assign_weights(rollouts, count_rollouts(rollouts), PER_TOKEN)
    live = [row.aux_weight for r in rollouts if r.in_loss for row in r.rows if row.agent_tokens]
    assert sum(live) == pytest.approx(1.0)
    assert all(row.aux_weight == 0 for r in rollouts if not r.in_loss for row in r.rows)


@pytest.mark.parametrize("pays_from", [0.0, math.inf], ids=["forest", "rows"])
def test_passes_are_padded_to_a_multiple_and_the_loss_stays(make_trainer, monkeypatch, pays_from):
    monkeypatch.setattr(forest, "PAYS_FROM", pays_from)
    losses = []
    for multiple in (None, 32):
        trainer = make_trainer(pad_to_multiple_of=multiple)
        rollouts = rollouts_of(trainer)
        losses.append(trainer.train_micro_batch(trainer.model, rollouts).item())
        (layout,) = trainer.loss.layouts(trainer.model, rollouts)
        length = layout.inputs(torch.device("cpu"))["input_ids"].shape[1]
        assert (length % 32 == 0) == (multiple == 32)
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.parametrize("kind", ["all", "non_padding"])
def test_tokens_are_counted(make_trainer, monkeypatch, kind):
    monkeypatch.setattr(forest, "PAYS_FROM", math.inf)
    trainer = make_trainer(
        include_num_input_tokens_seen=kind, max_steps=1, max_tokens_per_forward=200
    )
    trainer.loss.layouts(
        trainer.model, []
    )  # compares a pass over shared prefixes with one over rows
    seen = []
    forward = trainer.loss.scorer.forward

    def keep(model, layout, **options):
        seen.append(layout.size if kind == "all" else layout.tokens)
        return forward(model, layout, **options)

    trainer.loss.scorer.forward = keep
    trainer.train()
    assert trainer.state.num_input_tokens_seen == sum(seen) > 0


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
