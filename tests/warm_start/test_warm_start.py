"""Warm start: targets worked out by hand, equal seeds, checkpoints, LoRA, when it stops."""

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_tiny import SMALL, weights_hash

from agentsgym import MultistepEnv, task_dataset
from agentsgym.agents import DirectOutputAgent, ScriptedAgent
from agentsgym.agents.scripted import RandomAgent
from agentsgym.training.loss.layout import pack
from agentsgym.types import Message
from agentsgym.warm_start.fit import fit, imitate, pad, target_loss
from agentsgym.warm_start.games import GameStream
from agentsgym.warm_start.lessons import (
    Example,
    Lessons,
    epoch_batches,
    examples_of,
    make_lessons,
    normalize,
)
from agentsgym.warm_start.new_model import warm_start
from agentsgym.warm_start.settings import WarmStartSettings
from agentsgym.warm_start.tiny import build_tokenizer as build_tiny_tokenizer
from helpers import CHATML, CountdownEnv, build_tokenizer, random_llama
from rollout.doubles import TextEngine

NEW = WarmStartSettings(
    steps=30, batch_size=16, games_per_round=64, tokenizer_games=100, warmup_steps=5, model=SMALL
)
FAST = WarmStartSettings(epochs=3, batch_size=2, learning_rate=1e-2, held_out_share=0.25)


def played(tokenizer, lines, tasks=({"rewards": [0.0, 1.0]},)):
    env = CountdownEnv(tokenizer)
    return env, env.run_trial(list(tasks), ScriptedAgent(lines)).rollouts


def marked(tokenizer, example):
    """The tokens with a weight."""
    ids, weights = example.ids.tolist(), example.weights.tolist()
    return [tokenizer.decode([i]) for i, weight in zip(ids, weights, strict=True) if weight]


# -- examples --------------------------------------------------------------------------------------


def test_targets_are_the_agents_tokens_and_the_end_of_its_turns():
    """Two steps: user, prompt, agent, [apple], end, user, number, agent, [banana], and the end
    that the row does not have yet."""
    lines = ["Is it an animal?", "The number is 1", "[apple]", "[banana]", "fail"]
    tokenizer = build_tiny_tokenizer(lines * 2, 400)
    env, (rollout,) = played(tokenizer, ["[apple]", "[banana]"])
    (example,) = examples_of(rollout, env.codec, 3.0)
    assert tokenizer.convert_ids_to_tokens(example.ids.tolist()) == [
        "<|user|>",
        "IsĠitĠanĠanimal?",
        "<|agent|>",
        "[apple]",
        "<|end|>",
        "<|user|>",
        "TheĠnumberĠisĠ1",
        "<|agent|>",
        "[banana]",
        "<|end|>",
    ]
    assert example.weights.tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 3, 3]
    (example,) = examples_of(rollout, env.codec, drawn=1)
    assert example.weights.tolist() == [0, 0, 0, 0.25, 0.25, 0, 0, 0, 1, 1]


def test_actions_that_cannot_be_read_are_no_targets(chat_tokenizer):
    env, (rollout,) = played(chat_tokenizer, ["bad", "[banana]"])
    (example,) = examples_of(rollout, env.codec)
    assert "".join(marked(chat_tokenizer, example)) == "[banana]<|im_end|>"
    env, (rollout,) = played(chat_tokenizer, ["[apple]", "bad"])
    (example,) = examples_of(rollout, env.codec)
    assert "".join(marked(chat_tokenizer, example)) == "[apple]<|im_end|>"
    assert example.ids[-1] == chat_tokenizer.eos_token_id and example.weights[-1] == 1


def test_games_that_a_model_sampled_give_the_examples_of_the_same_words(chat_tokenizer):
    engine = TextEngine(chat_tokenizer, "[apple]<|im_end|>")
    env, (spoken,) = played(chat_tokenizer, ["[apple]", "[apple]"])
    (sampled,) = env.run_trial([spoken.task_data], DirectOutputAgent(engine)).rollouts
    (one,), (other,) = examples_of(spoken, env.codec), examples_of(sampled, env.codec)
    assert one.ids.tolist() == other.ids.tolist()
    assert one.weights.tolist() == other.weights.tolist()


def test_without_a_template_an_action_ends_with_the_end_of_text(plain_tokenizer):
    """As in a model's own rows, where the token that it sampled last stays in front of the
    observation."""
    env, (rollout,) = played(plain_tokenizer, ["[apple]", "[banana]"])
    (example,) = examples_of(rollout, env.codec)
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
    with pytest.raises(ValueError):
        make_lessons(bad, env.codec, 0.0)


# -- batches and the loss --------------------------------------------------------------------------


def test_targets_of_short_and_long_games_weigh_the_same():
    games = [Example(np.arange(n), np.ones(n, dtype=np.float32)) for n in (1, 1, 4, 6)]
    weights = np.concatenate([game.weights for game in normalize(games, 2)])
    assert weights == pytest.approx(np.full(12, 2 / 12))


def test_an_epoch_has_each_example_once():
    games = [Example(np.arange(n), np.ones(n, dtype=np.float32)) for n in range(1, 12)]
    batch = epoch_batches(games, 2, seed=0)
    epochs = [[len(e.ids) for step in range(6) for e in batch(step + k)] for k in (0, 6)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(1, 12))


def test_each_game_of_a_round_is_learned_from_as_often_as_there_are_epochs(chat_tokenizer):
    """Two rounds of 4 games in batches of 2: each round has its games 3 times, in 6 batches."""
    tasks = [{"rewards": [0.0] * k} for k in range(1, 9)]
    changes = {"batch_size": 2, "games_per_round": 4, "epochs": 3}
    settings = NEW.model_copy(update=changes).resolved(new_model=True)
    env = CountdownEnv(chat_tokenizer)
    stream = GameStream(env, ScriptedAgent(["[apple]"]), tasks, settings, seed=0)
    rounds = [[len(e.ids) for step in range(6) for e in stream.batch(step)] for _ in range(2)]
    for lengths in rounds:
        assert len(lengths) == 12 and {lengths.count(n) for n in lengths} == {3}
    assert not set(rounds[0]) & set(rounds[1])


def test_chunks_bound_padded_tokens_and_change_no_update(chat_tokenizer):
    examples = [Example(np.arange(n) + 3, np.ones(n, dtype=np.float32)) for n in (9, 3, 4, 8, 3)]
    parts = pack(examples, 12)
    assert [[len(e.ids) for e in part] for part in parts] == [[3, 3, 4], [8], [9]]
    losses = [
        fit(
            random_llama(chat_tokenizer),
            Lessons(tuple(examples)),
            WarmStartSettings(epochs=2, batch_size=5, max_tokens_per_forward=most),
            pad_id=0,
        ).loss
        for most in (12, 1000)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_loss_is_the_weighted_sum_over_targets(tiny_llama):
    long = Example(np.array([5, 7, 4, 9, 1]), np.array([0, 0, 0, 1, 2], dtype=np.float32))
    short = Example(np.array([5, 8, 4]), np.array([0, 0, 5], dtype=np.float32))
    ids, weights = pad([long, short], 0)
    assert ids.tolist() == [[5, 7, 4, 9, 1], [5, 8, 4, 0, 0]]
    total = 0.0
    for example, targets in ((long, ((3, 1.0), (4, 2.0))), (short, ((2, 5.0),))):
        logps = tiny_llama(torch.tensor([example.ids.tolist()])).logits[0].log_softmax(-1)
        total += sum(float(-w * logps[t - 1, example.ids[t]].detach()) for t, w in targets)
    loss = float(target_loss(tiny_llama, ids, weights).detach())
    assert loss == pytest.approx(total, rel=1e-5)


# -- a new model -----------------------------------------------------------------------------------


class Adder:
    """Answers the prompt with one of two guesses, according to the task's place in the series."""

    def __init__(self):
        self.games = 0

    def get_action(self, messages, agent_state):
        if agent_state is None:
            self.games += 1
        return ("[apple]" if self.games % 2 else "[banana]"), True


def test_any_environment_with_a_scripted_agent_can_be_warm_started():
    reports = []
    result = warm_start(
        CountdownEnv(), Adder(), NEW, seed=3, progress=lambda *report: reports.append(report)
    )
    assert result.figures["loss"] < 0.5 * result.figures["first_loss"]
    assert result.figures["games"] == 480 and result.figures["tokens_per_action"] == 1.0
    assert reports[-1][:2] == (30, 30) and set(reports[-1][2]) == {"loss", "lr"}
    same = warm_start(CountdownEnv(), Adder(), NEW, seed=3)
    assert weights_hash(same.model) == weights_hash(result.model)


class BankEnv(MultistepEnv):
    """Whoever banks ends the game; the others play seven turns."""

    def _initialize_episode(self, session_id, task_data):
        return 0

    def _format_prompt(self, state, step):
        return "now" if step else "begin"

    def _step_episode(self, session_id, state, action):
        return state + 1, 0.0, action == "bank" or state == 6, {}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(64)])


def test_what_half_of_the_games_do_is_learned_as_a_half():
    """Half of the games are over after one action, and clipping hides none of the others."""
    draw = random.Random(0)

    def play(messages, state):
        if state is None:
            state = draw.choice(["bank", "roll"])
            return state, state
        return "on", state

    player = SimpleNamespace(get_action=play)
    settings = NEW.model_copy(update={"steps": 80, "games_per_round": 320, "vocab_size": 300})
    result = warm_start(BankEnv(), player, settings)
    begin = [Message("user", "begin")]
    ids = result.tokenizer.apply_chat_template(begin, add_generation_prompt=True, tokenize=False)
    ids = result.tokenizer(ids, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        chances = result.model(input_ids=ids).logits[0, -1].softmax(-1)
    bank, roll = (chances[result.tokenizer.encode(word)[0]] for word in ("bank", "roll"))
    assert 0.4 < bank / (bank + roll) < 0.6


def test_the_first_updates_may_be_on_other_games():
    """Twenty updates of sixteen games: five rounds of 64 games, which another player plays."""
    first, later = Adder(), Adder()
    settings = NEW.model_copy(update={"first_steps": 20})
    warm_start(CountdownEnv(), later, settings, first=(CountdownEnv(), first))
    assert first.games == 320
    # The tokenizer's, ten updates in rounds of 64, and those that the imitator is compared with.
    assert later.games == 100 + 192 + 128


def test_the_best_of_games_that_earn_alike_fills_up_only(chat_tokenizer):
    """Tasks with an odd seed pay nothing: half of the first four draws and of the second four."""
    player = SimpleNamespace(get_action=lambda messages, state: (next(draw), None))
    draw = iter(["bad", "[banana]"] * 64)
    env = PayEnv(chat_tokenizer)
    settings = NEW.model_copy(update={"best_of": 2})
    tasks = [{"seed": k} for k in range(4)]
    games = GameStream(env, player, tasks, settings, 0).best(4)
    assert [game.final_reward for game in games] == [1.0] * 4
    assert 128 - len([*draw]) == 16  # eight tasks, two games on each
    draw = iter(["bad", "[banana]"] * 64)
    games = GameStream(env, player, tasks[1::2], settings, 0).best(4)
    assert [game.final_reward for game in games] == [0.0] * 4


class AskEnv(MultistepEnv):
    """A question costs 0.1 and tells which of two words earns 1."""

    def _initialize_episode(self, session_id, task_data):
        return {"word": ["red", "blue"][task_data["seed"] % 2], "says": "Which?"}

    def _format_prompt(self, state, step):
        return state["says"]

    def _step_episode(self, session_id, state, action):
        asks = action == "ask"
        reward = -0.1 if asks else float(action == state["word"])
        return {**state, "says": f"It is {state['word']}."}, reward, not asks, {}

    def admissible_actions(self, state):
        return ["ask", "red", "blue"]


class OneWordEnv(AskEnv):
    """It ends with the first action."""

    def _step_episode(self, session_id, state, action):
        state, reward, _, facts = super()._step_episode(session_id, state, action)
        return state, reward, True, facts


@pytest.mark.parametrize("noisy", [False, True])
def test_games_of_a_random_player_are_also_played_on_after_its_questions(noisy, monkeypatch):
    """The best of sixteen whole games guesses at once; those that begin after a question show what
    its answer is good for. Where equal actions are not answered equally there are none."""
    env = AskEnv(build_tiny_tokenizer(["Which?", "It is red.", "It is blue.", "ask"], 400))
    settings = NEW.model_copy(update={"best_of": 16})
    tasks = [{"seed": k} for k in range(8)]
    stream = GameStream(env, RandomAgent(env, seed=0), tasks, settings, 0)
    if noisy:
        count = itertools.count()
        says = lambda self, state, step: f"{state['says']} {next(count)}"  # noqa: E731
        monkeypatch.setattr(AskEnv, "_format_prompt", says)
    games = stream.imitated(40)
    whole = [game for game in games if not game.replayed]
    on = [game for game in games if game.replayed]
    assert len(whole) == 20 and sum(len(game.steps) == 1 for game in whole) >= 18
    assert (len(on) == 0) if noisy else (len(on) >= 15)
    for game in on:
        *asked, last = [step.action for step in game.steps]
        assert asked == ["ask"] * game.replayed
        assert last == ["red", "blue"][game.task_data["seed"] % 2]


def test_games_of_one_action_are_imitated_whole():
    env = OneWordEnv(build_tiny_tokenizer(["Which?", "ask", "red", "blue"], 400))
    settings = NEW.model_copy(update={"best_of": 16})
    tasks = [{"seed": k} for k in range(8)]
    games = GameStream(env, RandomAgent(env, seed=0), tasks, settings, 0).imitated(7)
    assert [game.replayed for game in games] == [0] * 7


class PayEnv(BankEnv):
    """Pays for one action, on tasks with an even seed."""

    def _initialize_episode(self, session_id, task_data):
        return task_data["seed"]

    def _step_episode(self, session_id, state, action):
        return state, float(action == "[banana]" and state % 2 == 0), True, {}


@pytest.mark.parametrize(("most", "learned", "steps"), [(600, True, 250), (300, False, 300)])
def test_an_open_warm_start_ends_once_it_rests_and_has_learned(
    chat_tokenizer, most, learned, steps
):
    """At a rate of 0 the loss rests from the first window on: it is asked after 200 updates, and a
    fourth of them follows; or until 300, of which the last 60 are without questions."""
    game = Example(np.array([5, 7, 4, 9]), np.full(4, 1 / 3, dtype=np.float32))
    settings = WarmStartSettings(steps=most, batch_size=1, learning_rate=0.0)
    asked, rates, model = [], [], random_llama(chat_tokenizer)
    result = imitate(
        model,
        lambda step: [game],
        settings,
        pad_id=0,
        progress=lambda step, of, values: rates.append(of),
        learned=lambda: asked.append(model.training) or learned,
    )
    assert not any(asked)  # it plays in evaluation mode
    assert result.steps == steps and len(asked) == 1
    assert rates[198] == most and rates[-1] == steps


def test_a_warm_start_ends_when_its_time_is_used_up(chat_tokenizer, monkeypatch):
    """A second passes with each update. Of 20 seconds 16 are over after the 17th: a fourth of them
    follow, in which the learning rate falls to nearly nothing."""
    seconds = iter(range(10_000))
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))  # other threads ask `time` too
    monkeypatch.setattr("agentsgym.warm_start.fit.time", clock)
    game = Example(np.array([5, 7, 4, 9]), np.full(4, 1 / 3, dtype=np.float32))
    settings = WarmStartSettings(steps=500, batch_size=1, warmup_steps=0, max_seconds=20.0)
    rates = []
    result = imitate(
        random_llama(chat_tokenizer),
        lambda step: [game],
        settings,
        pad_id=0,
        progress=lambda step, of, values: rates.append(values["lr"]),
    )
    assert result.steps == 17 + 17 // 4 and result.late
    assert (
        rates[16] == pytest.approx(3e-3)
        and rates[-1] < 1e-3
        and rates[17:] == sorted(rates[17:], reverse=True)
    )


def test_a_failing_teacher_is_an_error_and_no_empty_lesson():
    with pytest.raises(RuntimeError, match="the environment broke"):
        warm_start(CountdownEnv(), ScriptedAgent(["fail"]), NEW)


# -- a pretrained model ----------------------------------------------------------------------------


def test_only_adapters_are_trained(chat_tokenizer):
    from peft import LoraConfig, get_peft_model

    tasks = [{"rewards": [0.0, 1.0], "solution": str(k)} for k in range(8)]
    env, rollouts = played(chat_tokenizer, ["[apple]", "[banana]"], tasks)
    lessons = make_lessons(rollouts, env.codec, 0.25)

    def adapted():
        model = random_llama(chat_tokenizer)
        torch.manual_seed(1)
        lora = LoraConfig(r=4, lora_dropout=0.1, target_modules="all-linear")
        return get_peft_model(model, lora)

    whole, again = adapted(), adapted()
    base = {n: p.clone() for n, p in whole.named_parameters() if not p.requires_grad}
    result = fit(whole, lessons, FAST, pad_id=0)
    assert result.held_out_losses[result.step] < result.held_out_losses[0]
    assert all(torch.equal(p, base[n]) for n, p in whole.named_parameters() if n in base)
    assert fit(again, lessons, FAST, pad_id=0) == result
    for (name, one), other in zip(whole.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_float16_learns_what_float32_learns(chat_tokenizer):
    """But for the first updates, whose gradients are infinite at the scaler's first scale."""
    ids = np.array([5, 7, 4, 9, 1, 3, 8])
    games = tuple(Example(ids + k, np.ones(7, dtype=np.float32)) for k in range(8))
    settings = WarmStartSettings(epochs=30, batch_size=8, learning_rate=1e-2, warmup_steps=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    halves = {
        "autocast": lambda: torch.autocast("cpu", dtype=torch.float16),
        "scaler": scaler,
    }
    losses = [
        fit(random_llama(chat_tokenizer), Lessons(games), settings, pad_id=0, **options).loss
        for options in ({}, halves)
    ]
    assert losses[0] < 1 and losses[1] < 1.5
    assert 0 < scaler.get_scale() < 2.0**20


def test_training_stops_when_the_held_out_loss_rises_and_the_best_weights_stay(chat_tokenizer):
    """The held-out games are the opposite of the training games."""
    env, (train,) = played(chat_tokenizer, ["[apple]", "[apple]"])
    env, (other,) = played(chat_tokenizer, ["9 8 7 6", "5 4 3 2"])
    lessons = Lessons(
        tuple(examples_of(train, env.codec)) * 4, tuple(examples_of(other, env.codec))
    )
    settings = WarmStartSettings(epochs=50, batch_size=4, learning_rate=0.05, patience=2)
    model = random_llama(chat_tokenizer)
    result = fit(model, lessons, settings, pad_id=0)
    assert result.stopped_early and result.steps == result.step + 2 < 50
    ids, weights = pad(lessons.held_out, 0)
    with torch.no_grad():
        kept = float(target_loss(model, ids, weights)) / float(weights[:, 1:].sum())
    assert kept == pytest.approx(min(result.held_out_losses.values()), rel=1e-4)


# -- settings --------------------------------------------------------------------------------------


def test_the_rate_rises_and_falls_along_a_cosine_and_depends_on_what_is_trained():
    settings = WarmStartSettings(warmup_steps=2, final_lr=0.5)
    rates = [settings.rate_at(step, 4) / 2e-5 for step in range(4)]
    half = 0.5**0.5
    assert rates == pytest.approx([0.5, 0.75 + half / 4, 0.75, 0.75 - half / 4])
    late = [settings.rate_at(step, 6, falls_from=4) / 2e-5 for step in range(6)]
    assert late == pytest.approx([0.5, 1, 1, 1, 1, 0.75])
    assert WarmStartSettings().rate_at(1, 40, adapters=True) == pytest.approx(2e-4, rel=0.01)


def test_the_last_actions_weight_falls_to_one_half_way():
    settings = WarmStartSettings(final_action_weight=4.0)
    assert [settings.final_weight_at(step, 100) for step in (0, 25, 50, 99)] == [4.0, 2.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"steps": 0}, "steps"),
        ({"held_out_share": 1.0}, "held_out_share"),
        ({"first_env_config": {"arms": 2}}, "first_steps"),
        ({"source": "rollouts"}, "run"),
        ({"source": "teacher", "temperature": 2.0}, "temperature"),
        ({"source": "rollouts", "run": "first", "best_of": 2}, "best_of"),
    ],
)
def test_a_bad_value_is_refused_with_its_key(values, key):
    with pytest.raises(ValueError, match=key):
        WarmStartSettings(**values)


def test_a_key_without_effect_on_the_model_is_refused():
    with pytest.raises(ValueError, match="patience"):
        warm_start(CountdownEnv(), Adder(), WarmStartSettings(patience=3))
    with pytest.raises(ValueError, match="vocab_size"):
        WarmStartSettings(vocab_size=500).resolved(new_model=False)
    with pytest.raises(ValueError, match="task"):
        warm_start(CountdownEnv(), Adder(), NEW, tasks=[])
