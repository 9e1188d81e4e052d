"""A forest of rows: each distinct token is read once, and the loss is that of separate rows."""

import math
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model

from agentsgym.generation.embedded.attention import ATTENTION_NAME, LayerAttention
from agentsgym.training.loss import forest
from agentsgym.training.loss.batch import TrainRow
from agentsgym.training.loss.forest import Forest, by_prefix, cuts
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.trl_base import TRL_HAS_HEAD, add_own_head
from family_models import CHANGES, family_model
from of_rows import span_of
from training.cells import Cell

CPU = torch.device("cpu")


def train_row(ids, start=1, stop=None):
    """A row whose tokens from `start` on are one action, with advantages 1, 2, …"""
    spans = (span_of(0, 0, start, len(ids) if stop is None else stop),)
    advantages = np.arange(1.0, len(ids) + 1)
    logprobs = np.zeros(len(ids), np.float32)
    return TrainRow(np.array(ids, np.int32), logprobs, advantages, spans, weights={"policy": 1.0})


def tree_of(rows):
    return Forest(*by_prefix(rows))


# -- which tokens are read -------------------------------------------------------------------------


def test_a_tree_by_hand():
    """Three rows and the beginning of one: 5 6 7, then 8, or 9 4, and 3 by itself."""
    tree = tree_of([train_row(ids) for ids in ([5, 6, 7, 9, 4], [5, 6, 7, 8], [3], [5, 6])])
    assert [row.token_ids.tolist() for row in tree.rows] == [
        [5, 6, 7, 9, 4],
        [5, 6, 7, 8],
        [5, 6],
        [3],
    ]
    inputs = tree.inputs(CPU)
    ids, positions = inputs["input_ids"][0].tolist(), inputs["position_ids"][0].tolist()
    assert tree.tokens == tree.size == len(ids) == 7
    assert sorted(zip(positions, ids, strict=True)) == [
        (0, 3),
        (0, 5),
        (1, 6),
        (2, 7),
        (3, 8),
        (3, 9),
        (4, 4),
    ]
    for i, row in enumerate(tree.rows):
        nodes = tree.index(np.full(row.length, i), np.arange(row.length))
        assert [ids[node] for node in nodes] == row.token_ids.tolist()
        assert [positions[node] for node in nodes] == list(range(row.length))


def test_metrics_say_what_was_read(make_trainer, tiny_llama):
    """The rows of `train_on="steps"` are beginnings of the rollouts' rows; a pass of 40 tokens
    holds few of them."""
    trainer = make_trainer(train_on="steps", max_tokens_per_forward=40)
    rollouts = Cell(tiny_llama, train_on="steps", off_policy=False).for_trainer()["rollouts"]
    trainer.weigh_rollouts([rollouts])
    trainer.train_micro_batch(trainer.model, rollouts)
    rows = [row for r in rollouts if r.in_loss for row in r.rows if row.agent_tokens]
    distinct = {tuple(row.token_ids[:n]) for row in rows for n in range(1, row.length + 1)}
    (read,), (counted,) = map(trainer.recorded_metric, ("tokens_read", "distinct_tokens"))
    assert counted == len(distinct) <= read < sum(row.length for row in rows)


def test_a_cut_falls_where_it_repeats_least():
    """Two groups with prompts of four tokens and answers of two; twelve tokens fit into a pass. A
    full first pass would cut the second group and read its prompt twice."""
    lengths, shared = np.full(5, 6), np.array([0, 4, 0, 4, 4])
    assert cuts(lengths, shared, 14) == [slice(0, 2), slice(2, 5)]
    assert cuts(lengths, shared, 18) == [slice(0, 5)]
    # A full last pass would cut the first group.
    assert cuts(lengths, np.array([0, 4, 4, 0, 4]), 14) == [slice(0, 3), slice(3, 5)]
    # Where every cut repeats something, as few as possible.
    lengths, shared = np.full(4, 6), np.array([0, 4, 1, 4])
    assert cuts(lengths, shared, 10) == [slice(0, 2), slice(2, 4)]
    # A row that is too long has its beginnings with it and nothing else.
    assert cuts(np.array([9, 7, 9]), np.array([0, 7, 6]), 5) == [slice(0, 2), slice(2, 3)]


ROWS = st.lists(st.lists(st.integers(2, 4), min_size=1, max_size=7), min_size=1, max_size=12)


@given(ROWS, st.integers(1, 30))
def test_every_distinct_beginning_is_read_once_in_passes_of_bounded_size(rows, most):
    ordered, shared = by_prefix([train_row(ids) for ids in rows])
    lengths = np.array([row.length for row in ordered])
    parts = cuts(lengths, shared, most)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(len(rows)))
    for part in parts:
        tree = Forest(ordered[part], shared[part])
        beginnings = {
            tuple(row.token_ids[:n]) for row in tree.rows for n in range(1, row.length + 1)
        }
        assert tree.size == len(beginnings)
        assert tree.size <= max(most, tree.rows[0].length)
    whole = Forest(ordered, shared)
    repeated = sum(int(shared[part.start]) for part in parts)
    assert sum(Forest(ordered[p], shared[p]).size for p in parts) == whole.size + repeated


def test_a_window_leaves_the_gradient_beside_padding_finite():
    """Branches of 25 and 15 tokens attend together: the shorter one's padding would stand beyond
    what its window reaches."""
    whole = list(range(50))
    rows = [train_row(whole), train_row(whole[:25] + [0] * 25), train_row(whole[:35] + [0] * 15)]
    planes = [torch.randn(1, 2, 90, 4, requires_grad=True) for _ in range(3)]
    queries, keys, values = planes
    layer = LayerAttention(window=8, cap=5.0)
    for group in tree_of(rows).inputs(CPU)["packed_groups"]:
        part = queries[0].transpose(0, 1)[group.tokens]
        group.attend(part, keys, values, layer).sum().backward()
    assert all(plane.grad.isfinite().all() for plane in planes)


# -- the gradient ----------------------------------------------------------------------------------


def gradients(trainer, rollouts, monkeypatch):
    """Loss, gradient and tokens read of a micro-batch, as rows and as a forest."""
    model, results = trainer.model, []
    for pays_from in (math.inf, 0.0):
        monkeypatch.setattr(forest, "PAYS_FROM", pays_from)
        model.zero_grad()
        model.train()
        loss = trainer.train_micro_batch(model, rollouts)
        gradient = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        tokens = sum(part.tokens for part in trainer.loss.layouts(model, rollouts))
        results.append((float(loss), torch.cat(gradient).clone(), tokens))
    return results


def close(results, tolerance):
    (loss, gradient, tokens), (other, other_gradient, fewer) = results
    distance = float((gradient - other_gradient).abs().max() / gradient.abs().max())
    return fewer < tokens and abs(loss - other) < tolerance and distance < tolerance


def families():
    slow = set(CHANGES) - {"gemma2", "qwen3", "gpt_oss", "lfm2"}
    return [
        pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in CHANGES
    ]


OTHERS = {"qwen3_next", "qwen3_5_text", "granitemoehybrid", "lfm2", "falcon_h1"}
"""Families with layers that a forest cannot be read by."""


@pytest.mark.parametrize("model_type", families())
def test_a_family_is_equal_or_keeps_its_rows(
    make_trainer, chat_tokenizer, caplog, monkeypatch, model_type
):
    model = family_model(model_type, vocab_size=len(chat_tokenizer))
    trainer = make_trainer(model=model, train_on="steps", max_tokens_per_forward=500)
    cell = Cell(model, train_on="steps", off_policy=False)
    rollouts = cell.for_trainer()["rollouts"]
    trainer.weigh_rollouts([rollouts])
    results = gradients(trainer, rollouts, monkeypatch)
    # Without its soft cap, as transformers 5.16 computes it, Gemma 2 is another model in a forest.
    if model_type in OTHERS or (model_type == "gemma2" and not TRL_HAS_HEAD):
        assert results[0][2] == results[1][2]
        assert "reads common prefixes of rows again: " in caplog.text
    else:
        assert close(results, 2e-5)


@pytest.mark.parametrize("kind", ["checkpointing", "lora", "bf16"])
def test_training_in_its_kinds(make_trainer, tiny_llama, monkeypatch, kind):
    options = {"gradient_checkpointing": kind == "checkpointing", "bf16": kind == "bf16"}
    model = tiny_llama
    if kind == "lora":
        model = get_peft_model(tiny_llama, LoraConfig(r=4, target_modules="all-linear"))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    trainer = make_trainer(model=model, train_on="steps", **options)
    rollouts = Cell(tiny_llama, train_on="steps", off_policy=False).for_trainer()["rollouts"]
    trainer.weigh_rollouts([rollouts])
    assert close(gradients(trainer, rollouts, monkeypatch), 0.05 if kind == "bf16" else 1e-5)


@pytest.mark.parametrize("options", [{"bf16": False}, {"bf16": True}], ids=["float32", "bf16"])
def test_forests_are_compared_with_rows_in_float32(make_trainer, tiny_llama, caplog, options):
    """A difference that bfloat16 would hide keeps a model from forests."""
    usual = tiny_llama.model.norm.forward

    def other(states):
        packed = tiny_llama.config._attn_implementation == ATTENTION_NAME
        return usual(states) * (2.0 if packed else 1.0)  # of logits near 0.1

    for forward, shares in ((usual, True), (other, False)):
        tiny_llama.model.norm.forward = forward
        trainer = make_trainer(model=tiny_llama, **options)
        assert trainer.loss.scorer._can_share(trainer.model) == shares, caplog.text


TREES = st.lists(
    st.tuples(st.lists(st.integers(5, 8), min_size=2, max_size=9), st.integers(1, 4)),
    min_size=2,
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(TREES, st.sampled_from([6, 12, 1000]))
def test_log_probabilities_and_gradients_of_random_trees(random_tree_scorer, rows, most):
    """In float64; transformers' own norms round to float32, so those of the fixture do not."""
    model, scorer_of = random_tree_scorer
    results = []
    for pays_from in (math.inf, 0.0):
        forest_rows = [train_row(ids, min(start, len(ids) - 1)) for ids, start in rows]
        scorer = scorer_of(most)
        before, forest.PAYS_FROM = forest.PAYS_FROM, pays_from
        try:
            layouts = scorer.layouts(forest_rows, model)
        finally:
            forest.PAYS_FROM = before
        model.zero_grad()
        logps = {}
        for layout in layouts:
            with scorer.reading(model, layout):
                scores = scorer.forward(model, layout)
                chunk = scores.chunk
                ((scores.logps + 0.1 * scores.entropy) * chunk.advantages).sum().backward()
            logps |= {
                id(row): values.detach()
                for row, values in zip(layout.rows, chunk.split(scores.logps), strict=True)
            }
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        results.append((torch.cat([logps[id(row)] for row in forest_rows]), gradient))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-12, rtol=0)
    scale = float(results[0][1].abs().max())
    assert float((results[0][1] - results[1][1]).abs().max()) <= 1e-10 * scale


def rms_norm(module, hidden):
    return torch.nn.functional.rms_norm(hidden, module.weight.shape, module.weight, 1e-5)


@pytest.fixture(scope="module")
def random_tree_scorer():
    """A Llama in float64, and a function that gives a scorer of passes of so many tokens."""
    model = family_model("llama").double()
    for module in model.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.forward = partial(rms_norm, module)
    add_own_head(model, 1.0)
    accelerator = SimpleNamespace(
        unwrap_model=lambda model: model,
        device=CPU,
        autocast=nullcontext,
        mixed_precision="no",
        distributed_type="NO",
    )
    ranks = SimpleNamespace(gather=lambda values: values)

    def scorer_of(most):
        args = SimpleNamespace(
            max_tokens_per_forward=most, gradient_checkpointing=False, temperature=1.0
        )
        return Scorer(accelerator, ranks, 1, args)

    return model, scorer_of
