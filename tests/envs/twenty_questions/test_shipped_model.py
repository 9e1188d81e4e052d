"""The teacher of Twenty Questions, and the checkpoint that learned from it and ships."""

import json
from importlib.resources import files

import numpy as np
import pytest

from agentsgym import DirectOutputAgent, SamplingParams
from agentsgym.envs.twenty_questions import TwentyQuestionsEnv
from agentsgym.generation import EmbeddedEngine

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
    from agentsgym.runs.models import load_pretrained

    folder = files("agentsgym") / "presets" / "quickstart"
    figures = json.loads((folder / "figures.json").read_text())
    return load_pretrained(str(folder)), figures, folder


def test_the_checkpoint_is_small_and_does_what_its_figures_say(shipped):
    policy, figures, folder = shipped
    assert sum(entry.stat().st_size for entry in folder.iterdir()) <= 4 * 2**20
    env = TwentyQuestionsEnv(None, {**figures["env_config"], "explain_actions": False})
    player = TwentyQuestionsEnv(policy.tokenizer, env.env_config)
    agent = DirectOutputAgent(
        EmbeddedEngine(policy.model, policy.tokenizer, capacity=256), SamplingParams(max_tokens=12)
    )
    played = player.run_trial(list(env.get_eval_dataset()["task_data"])[:256], agent)
    won = np.mean(played["final_rewards"])
    assert won == pytest.approx(figures["model"]["win_rate"], abs=0.1)
    for text in ("Is it electric?", env.table.attributes[0].question, f"[{env.table.secrets[0]}]"):
        assert policy.tokenizer.decode(policy.tokenizer.encode(text)) == text
