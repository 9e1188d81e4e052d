"""The teacher of Twenty Questions, and the checkpoint that learned from it and ships."""

import json
from importlib.resources import files

import numpy as np
import pytest

from agentsgym.envs.known_game import known_play
from agentsgym.envs.twenty_questions import TwentyQuestionsEnv
from agentsgym.envs.twenty_questions.guess_consistency import consistent_mass
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
    batch = env.run_trial(tasks, env.teacher_agent(seed=1), 5)
    assert not any(rollout.failed for rollout in batch.rollouts)
    lengths = [len(rollout.episodes[0].steps) for rollout in batch.rollouts]
    counts = np.bincount(lengths, minlength=9)[1:] / len(lengths)
    assert np.all(abs(counts - 1 / 8) < 0.07)
    for rollout in batch.rollouts[:50]:
        known = [*env.hints(rollout.task_data["solution"], rollout.task_data["seed"])]
        *questions, last = rollout.episodes[0].steps
        known += [(s.info["attribute"], s.info["answer"] == "Yes") for s in questions]
        row = env.table.row(last.action[1:-1])
        assert all(row[env.table.attribute_index[key]] == value for key, value in known)


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
    measured = consistent_mass(policy.model, policy.tokenizer, env, games=64)
    assert measured["mean"] == pytest.approx(figures["consistent_mass"]["mean"], abs=0.05)
    assert measured["chance"] < 0.5 < measured["mean"]
    for text in ("Is it electric?", env.table.attributes[0].question, f"[{env.table.secrets[0]}]"):
        assert policy.tokenizer.decode(policy.tokenizer.encode(text)) == text


def test_an_environment_measures_what_a_new_model_understands(shipped):
    policy, figures, _ = shipped
    env = TwentyQuestionsEnv(None, {**figures["env_config"], "explain_actions": False})
    measured = env.model_figures(policy.model, policy.tokenizer)
    assert measured["chance_mass"] < 0.5 < 0.85 < measured["consistent_mass"] < 1.0
    trials = TwentyQuestionsEnv(
        None, {**env.config.model_dump(), "episodes_per_trial": 2, "carry": "full"}
    )
    assert trials.model_figures(policy.model, policy.tokenizer) == {}
    assert TwentyQuestionsEnv(None).model_figures(policy.model, policy.tokenizer) == {}
    assert known_play(CountdownEnv(None)).model_figures(policy.model, policy.tokenizer) == {}
