"""Supervised training of any model on games: targets worked out by hand, LoRA, when it stops."""

import numpy as np
import pytest
import torch

from agentsgym.agents import ScriptedAgent
from agentsgym.training.trl_compat import fused_head
from agentsgym.training.trl_compat.head import add_head
from agentsgym.training.warm_start.fitting import chunked, fit, target_loss
from agentsgym.training.warm_start.imitation import Example, pad
from agentsgym.training.warm_start.lessons import Lessons, examples_of_game, make_lessons
from agentsgym.training.warm_start.progress_files import Progressed
from agentsgym.training.warm_start.supervised import SupervisedConfig
from helpers import CHATML, CountdownEnv, build_tokenizer, random_llama

FAST = SupervisedConfig(epochs=3, batch_size=2, learning_rate=1e-2, held_out_share=0.25)


def played(tokenizer, lines, tasks=({"rewards": [0.0, 1.0]},)):
    env = CountdownEnv(tokenizer)
    return env, env.run_trial(list(tasks), ScriptedAgent(lines)).rollouts


def marked(tokenizer, example):
    """The tokens with a weight."""
    ids, weights = example.ids.tolist(), example.weights.tolist()
    return [tokenizer.decode([i]) for i, weight in zip(ids, weights, strict=True) if weight]


def test_targets_are_readable_actions_and_the_end_of_their_turns(chat_tokenizer):
    env, (rollout,) = played(chat_tokenizer, ["[apple]", "[banana]"])
    (example,) = examples_of_game(rollout, env.codec)
    assert "".join(marked(chat_tokenizer, example)) == "[apple]<|im_end|>[banana]<|im_end|>"
    row = rollout.rows[0].token_ids
    assert tuple(example.ids) == (*row, chat_tokenizer.eos_token_id)
    env, (rollout,) = played(chat_tokenizer, ["bad", "[banana]"])
    (example,) = examples_of_game(rollout, env.codec)
    assert "".join(marked(chat_tokenizer, example)) == "[banana]<|im_end|>"
    env, (rollout,) = played(chat_tokenizer, ["[apple]", "bad"])
    (example,) = examples_of_game(rollout, env.codec)
    assert "".join(marked(chat_tokenizer, example)) == "[apple]<|im_end|>"
    assert example.ids[-1] == chat_tokenizer.eos_token_id and example.weights[-1] == 1


def test_without_a_template_an_action_ends_with_the_end_of_text(plain_tokenizer):
    """As in a model's own rows, where the token that it sampled last stays in front of the
    observation."""
    env, (rollout,) = played(plain_tokenizer, ["[apple]", "[banana]"])
    (example,) = examples_of_game(rollout, env.codec)
    text = plain_tokenizer.decode(example.ids)
    assert text == "Is it an animal?[apple]<|im_end|>The number is 1[banana]<|im_end|>"
    assert marked(plain_tokenizer, example).count("<|im_end|>") == 2


@pytest.mark.parametrize(
    ("template", "end"),
    [
        (CHATML, "<|im_end|>"),
        (CHATML.replace("<|im_end|>\n", " <|im_end|>\n"), " <|im_end|>"),
        ("{% for m in messages %}{{ m['content'] }}\n{% endfor %}", "<|im_end|>"),
    ],
    ids=["ChatML", "a space before it", "no control tokens"],
)
def test_the_end_of_a_turn_is_what_the_template_writes(template, end):
    tokenizer = build_tokenizer(template)
    assert tokenizer.decode(CountdownEnv(tokenizer).codec.turn_end) == end


def test_whole_tasks_are_held_out(chat_tokenizer):
    tasks = [{"rewards": [0.0, float(k)], "solution": str(k % 4)} for k in range(16)]
    env, rollouts = played(chat_tokenizer, ["[apple]", "[banana]"], tasks)
    lessons = make_lessons(rollouts, env.codec, 0.25, seed=1)
    assert (len(lessons.train), len(lessons.held_out)) == (12, 4)
    one_task = [r for r in rollouts if r.task_data["solution"] == "0"]
    lessons = make_lessons(one_task, env.codec, 0.25)
    assert (len(lessons.train), len(lessons.held_out)) == (3, 1)
    env, bad = played(chat_tokenizer, ["bad", "bad"])
    with pytest.raises(ValueError, match="no game with a readable action"):
        make_lessons(bad, env.codec, 0.0)


def test_the_loss_is_that_of_a_full_forward_pass_at_temperature_one(tiny_llama):
    add_head(tiny_llama, 0.5)
    before = tiny_llama.forward
    long = Example(np.array([5, 7, 4, 9, 1]), np.array([0, 0, 0, 1, 2], dtype=np.float32))
    short = Example(np.array([5, 8, 4]), np.array([0, 0, 5], dtype=np.float32))
    with fused_head(tiny_llama):
        loss = target_loss(tiny_llama, *pad([long, short], 0))
    total = 0.0
    for example, targets in ((long, ((3, 1.0), (4, 2.0))), (short, ((2, 5.0),))):
        logps = tiny_llama(torch.tensor([example.ids.tolist()])).logits[0].log_softmax(-1)
        total += sum(float(-w * logps[t - 1, example.ids[t]].detach()) for t, w in targets)
    assert float(loss.detach()) == pytest.approx(total, rel=1e-5)
    assert tiny_llama.forward == before


def test_chunks_bound_padded_tokens_and_change_no_update(chat_tokenizer):
    examples = [Example(np.arange(n) + 3, np.ones(n, dtype=np.float32)) for n in (9, 3, 4, 8, 3)]
    parts = list(chunked(examples, 12))
    assert [[len(e.ids) for e in part] for part in parts] == [[3, 3, 4], [8], [9]]
    results = []
    for most in (12, 1000):
        model = random_llama(chat_tokenizer)
        config = SupervisedConfig(
            epochs=2, batch_size=5, max_tokens_per_forward=most, held_out_share=0.0
        )
        results.append(fit(model, Lessons(tuple(examples), ()), config, pad_id=0).loss)
    assert results[0] == pytest.approx(results[1], rel=1e-5)


def test_only_adapters_are_trained_and_resumed(chat_tokenizer, tmp_path):
    from peft import LoraConfig, get_peft_model

    tasks = [{"rewards": [0.0, 1.0], "solution": str(k)} for k in range(8)]
    env, rollouts = played(chat_tokenizer, ["[apple]", "[banana]"], tasks)
    lessons = make_lessons(rollouts, env.codec, 0.25)

    def adapted():
        model = random_llama(chat_tokenizer)
        torch.manual_seed(1)
        lora = LoraConfig(r=4, lora_dropout=0.1, target_modules="all-linear")
        return get_peft_model(model, lora)

    class Killed(Exception):
        pass

    def kill(step, steps, values):
        if step == 5:
            raise Killed

    whole, parts = adapted(), adapted()
    base = {n: p.clone() for n, p in whole.named_parameters() if not p.requires_grad}
    result = fit(whole, lessons, FAST, pad_id=0)
    assert result.held_out_losses[result.step] < result.held_out_losses[0]
    assert all(torch.equal(p, base[n]) for n, p in whole.named_parameters() if n in base)
    with pytest.raises(Killed):
        fit(parts, lessons, FAST, pad_id=0, folder=tmp_path, progress=kill)
    again = adapted()
    assert fit(again, lessons, FAST, pad_id=0, folder=tmp_path) == result
    for (name, one), other in zip(whole.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_training_stops_when_the_held_out_loss_rises_and_the_best_weights_stay(chat_tokenizer):
    """The held-out games are the opposite of the training games."""
    env, (train,) = played(chat_tokenizer, ["[apple]", "[apple]"])
    env, (other,) = played(chat_tokenizer, ["9 8 7 6", "5 4 3 2"])
    lessons = Lessons(
        tuple(examples_of_game(train, env.codec)) * 4, tuple(examples_of_game(other, env.codec))
    )
    config = SupervisedConfig(epochs=50, batch_size=4, learning_rate=0.05, patience=2)
    model = random_llama(chat_tokenizer)
    result = fit(model, lessons, config, pad_id=0)
    assert result.stopped_early and result.steps == result.step + 2 < 50
    with fused_head(model), torch.no_grad():
        ids, weights = pad(lessons.held_out, 0)
        kept = float(target_loss(model, ids, weights)) / float(weights[:, 1:].sum())
    assert kept == pytest.approx(min(result.held_out_losses.values()), rel=1e-4)


def test_progress_counts_held_out_losses_since_the_lowest():
    progressed = Progressed()
    for step, loss in enumerate([3.0, 2.0, 2.5, 2.1]):
        progressed.step = step
        progressed.note_held_out(loss)
    assert (progressed.best, progressed.without_better) == (1, 2)


def test_the_rate_rises_and_falls_and_depends_on_what_is_trained():
    config = SupervisedConfig(warmup_share=0.2)
    rates = [config.rate_at(step, 10, adapters=False) / 2e-5 for step in range(10)]
    assert rates == pytest.approx([0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])
    assert config.rate_at(2, 10, adapters=True) == pytest.approx(2e-4)
    with pytest.raises(ValueError, match="held_out_share must be below 1"):
        SupervisedConfig(held_out_share=1.0)
