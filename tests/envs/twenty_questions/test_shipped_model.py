"""The teacher of Twenty Questions, and the checkpoint that learned from it and ships."""

import json
from importlib.resources import files

import numpy as np
import pytest
import torch

from agentsgym.envs.known_game import known_play
from agentsgym.envs.twenty_questions import TwentyQuestionsEnv
from agentsgym.envs.twenty_questions.agents import RandomTeacher
from agentsgym.envs.twenty_questions.guess_consistency import consistent_mass, guess_probabilities
from helpers import CountdownEnv

QUICKSTART = {
    "table": "quickstart",
    "split": "hints",
    "hints": 2,
    "max_steps_per_episode": 8,
    "answer_style": "echo",
}


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
    from agentsgym.runs.models.pretrained import load_pretrained

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
    trials = TwentyQuestionsEnv(
        None, {**env.config.model_dump(), "episodes_per_trial": 2, "carry": "full"}
    )
    assert trials.model_figures(policy.model, policy.tokenizer) == {}
    assert TwentyQuestionsEnv(None).model_figures(policy.model, policy.tokenizer) == {}
    assert known_play(CountdownEnv(None)).model_figures(policy.model, policy.tokenizer) == {}


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
