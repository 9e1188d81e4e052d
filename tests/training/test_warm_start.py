"""Warm start: targets worked out by hand, determinism, learning; the checkpoint that ships."""

import json
from importlib.resources import files

import numpy as np
import pytest
import torch
from test_tiny import SMALL, weights_hash

from agentsgym.agents import ScriptedAgent
from agentsgym.envs.twenty_questions import TwentyQuestionsEnv
from agentsgym.envs.twenty_questions.guess_consistency import consistent_mass, guess_probabilities
from agentsgym.envs.twenty_questions.teacher import RandomTeacher
from agentsgym.training.warm_start import WarmStartConfig, warm_start
from agentsgym.training.warm_start.imitation import (
    Example,
    batches,
    examples_of,
    imitation_loss,
    normalize,
    pad,
)
from agentsgym.training.warm_start.tiny import build_model, build_tokenizer
from helpers import CountdownEnv

QUICKSTART = {
    "table": "quickstart",
    "split": "hints",
    "hints": 2,
    "max_steps_per_episode": 8,
    "answer_style": "echo",
}
FAST = WarmStartConfig(
    steps=30, batch_size=16, games_per_round=64, tokenizer_games=100, warmup_steps=5, model=SMALL
)


@pytest.fixture(scope="module")
def countdown_tokenizer():
    lines = ["Is it an animal?", "The number is 1", "[apple]", "[banana]", "fail"]
    return build_tokenizer(lines * 2, 400)


def test_targets_are_the_agents_tokens_and_the_end_of_its_turns(countdown_tokenizer):
    """Two steps: user, prompt, agent, [apple], end, user, number, agent, [banana], and the end
    that the row does not have yet."""
    env = CountdownEnv(countdown_tokenizer)
    agent = ScriptedAgent(["[apple]", "[banana]"])
    batch = env.run_trial([{"rewards": [0.0, 1.0]}], agent)
    (example,) = examples_of(batch.rollouts, countdown_tokenizer.eos_token_id, 3.0)
    assert countdown_tokenizer.convert_ids_to_tokens(example.ids.tolist()) == [
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
    assert batch["agent_token_mask"] == [[0, 0, 0, 1, 0, 0, 0, 0, 1]]


def test_a_template_without_an_end_marks_the_agents_tokens_only(plain_tokenizer):
    env = CountdownEnv(plain_tokenizer)
    batch = env.run_trial([{"rewards": [0.0, 1.0]}], ScriptedAgent(["[apple]"]))
    (example,) = examples_of(batch.rollouts, None)
    assert example.weights.tolist() == [float(m) for m in batch["agent_token_mask"][0]]


def test_the_loss_is_the_weighted_sum_over_targets(countdown_tokenizer):
    model = build_model(countdown_tokenizer, SMALL).eval()
    long = Example(np.array([2, 7, 4, 9, 1]), np.array([0, 0, 0, 1, 2], dtype=np.float32))
    short = Example(np.array([2, 8, 4]), np.array([0, 0, 5], dtype=np.float32))
    ids, weights = pad([long, short], countdown_tokenizer.pad_token_id)
    assert ids.tolist() == [[2, 7, 4, 9, 1], [2, 8, 4, 0, 0]]
    total = 0.0
    for example, targets in ((long, ((3, 1.0), (4, 2.0))), (short, ((2, 5.0),))):
        logps = model(torch.tensor([example.ids.tolist()])).logits[0].log_softmax(-1)
        total += sum(float(-w * logps[t - 1, example.ids[t]].detach()) for t, w in targets)
    assert float(imitation_loss(model, ids, weights).detach()) == pytest.approx(total, rel=1e-5)


def test_targets_of_short_and_long_games_weigh_the_same():
    games = [Example(np.arange(n), np.ones(n, dtype=np.float32)) for n in (1, 1, 4, 6)]
    scaled = normalize(games, 2)
    weights = np.concatenate([game.weights for game in scaled])
    assert weights == pytest.approx(np.full(12, 2 / 12))


def test_batches_hold_games_of_like_length_and_each_game_once():
    games = [Example(np.arange(n), np.zeros(n, dtype=np.float32)) for n in range(1, 21)]
    found = list(batches(games, 5, np.random.default_rng(0)))
    assert sorted(len(g.ids) for batch in found for g in batch) == list(range(1, 21))
    assert all(max(len(g.ids) for g in b) - min(len(g.ids) for g in b) == 4 for b in found)


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
        CountdownEnv(), Adder(), FAST, seed=3, progress=lambda *report: reports.append(report)
    )
    assert result.figures["loss"] < 0.5 * result.figures["first_loss"]
    assert result.figures["games"] == 480 and result.figures["tokens_per_action"] == 1.0
    assert reports[-1][:2] == (30, 30) and set(reports[-1][2]) == {"loss", "lr"}
    same = warm_start(CountdownEnv(), Adder(), FAST, seed=3)
    assert weights_hash(same.model) == weights_hash(result.model)
    other = warm_start(CountdownEnv(), Adder(), FAST, seed=4)
    assert weights_hash(other.model) != weights_hash(result.model)


def test_a_failing_teacher_is_an_error_and_no_empty_lesson():
    with pytest.raises(RuntimeError, match="the environment broke"):
        warm_start(CountdownEnv(), ScriptedAgent(["fail"]), FAST)


def test_settings_and_tasks_are_checked():
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        WarmStartConfig(steps=0)
    with pytest.raises(ValueError, match="at least one task"):
        warm_start(CountdownEnv(), Adder(), FAST, tasks=[])


def test_the_last_actions_weight_falls_to_one_half_way():
    config = WarmStartConfig(steps=100, final_action_weight=4.0)
    assert [config.final_weight_at(step) for step in (0, 25, 50, 99)] == [4.0, 2.5, 1.0, 1.0]


def test_the_teacher_guesses_at_any_step_and_never_against_the_answers():
    env = TwentyQuestionsEnv(None, QUICKSTART)
    tasks = list(env.get_train_dataset()["task_data"])
    batch = env.run_trial(tasks, RandomTeacher(env, 1), 5)
    assert not any(rollout.failed for rollout in batch.rollouts)
    lengths = [len(rollout.episodes[0].steps) for rollout in batch.rollouts]
    counts = np.bincount(lengths, minlength=9)[1:] / len(lengths)
    assert np.all(abs(counts - 1 / 8) < 0.07)
    for rollout in batch.rollouts[:50]:
        known = [*env.hints(rollout.task_data["solution"], rollout.task_data["seed"])]
        *asked, last = rollout.episodes[0].steps
        known += [(s.info["attribute"], s.info["answer"] == "Yes") for s in asked]
        assert last.action[1:-1] in env.best_play.consistent(known)


def test_equal_seeds_give_equal_games():
    env = TwentyQuestionsEnv(None, QUICKSTART)
    tasks = list(env.get_train_dataset()["task_data"])[:20]
    played = [
        env.run_trial(tasks, RandomTeacher(env, seed))["final_completion_messages"]
        for seed in (1, 1, 2)
    ]
    assert played[0] == played[1] != played[2]


# -- the checkpoint that ships ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped():
    from agentsgym.runs.pretrained import load_pretrained

    folder = files("agentsgym") / "presets" / "quickstart"
    figures = json.loads((folder / "figures.json").read_text())
    return load_pretrained(str(folder)), figures, folder


def test_the_checkpoint_is_small_and_does_what_its_figures_say(shipped):
    policy, figures, folder = shipped
    assert sum(entry.stat().st_size for entry in folder.iterdir()) <= 4 * 2**20
    env = TwentyQuestionsEnv(None, {**figures["env_config"], "explain_actions": False})
    found = consistent_mass(policy.model, policy.tokenizer, env, games=64)
    assert found["mean"] == pytest.approx(figures["consistent_mass"]["mean"], abs=0.05)
    assert found["chance"] < 0.5 < found["mean"]
    for text in ("Is it electric?", env.table.attributes[0].question, f"[{env.table.secrets[0]}]"):
        assert policy.tokenizer.decode(policy.tokenizer.encode(text)) == text


def test_an_environment_measures_what_a_new_model_understands(shipped):
    policy, figures, _ = shipped
    env = TwentyQuestionsEnv(None, {**figures["env_config"], "explain_actions": False})
    found = env.model_figures(policy.model, policy.tokenizer)
    assert found["chance_mass"] < 0.5 < 0.85 < found["consistent_mass"] < 1.0
    trials = TwentyQuestionsEnv(None, {**env.config, "episodes_per_trial": 2, "carry": "full"})
    assert trials.model_figures(policy.model, policy.tokenizer) == {}
    assert TwentyQuestionsEnv(None).model_figures(policy.model, policy.tokenizer) == {}
    assert CountdownEnv(None).model_figures(policy.model, policy.tokenizer) == {}


def test_guesses_of_several_tokens_get_the_product_over_their_tokens(shipped):
    policy, figures, _ = shipped
    env = TwentyQuestionsEnv(policy.tokenizer, {**figures["env_config"], "explain_actions": False})
    task = env.get_eval_dataset()["task_data"][0]
    row = env.run_trial([task], RandomTeacher(env, 0, guesses=False)).rollouts[0].rows[0]
    guesses = [[300], [301, 302], [303, 304, 305]]
    found = guess_probabilities(policy.model, row, guesses)
    assert found.shape == (8, 3) and found.sum(axis=1) == pytest.approx(np.ones(8))
    context = list(row.token_ids[: row.spans[2].start])
    scores = []
    for guess in guesses:
        logits = policy.model(torch.tensor([context + guess])).logits[0].log_softmax(-1)
        places = range(len(context) - 1, len(context) + len(guess) - 1)
        scores.append(sum(float(logits[p, t]) for p, t in zip(places, guess, strict=True)))
    expected = torch.tensor(scores).softmax(0).tolist()
    assert found[2].tolist() == pytest.approx(expected, rel=1e-3, abs=1e-6)
