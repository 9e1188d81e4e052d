"""The game of experiments/notes.py: what a note is worth there, by enumeration; its two arms."""

from pathlib import Path

import numpy as np
import pytest

from agentsgym import ScriptedAgent, credit
from agentsgym.warm_start.tiny import build_tokenizer

pytest.importorskip("trl")

FOLDER = Path(__file__).resolve().parents[2] / "experiments"
SMALL = {"steps": 2, "batch_size": 8, "games_per_round": 16, "tokenizer_games": 64}


@pytest.fixture
def notes(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import notes

    return notes


@pytest.fixture
def env(notes):
    tasks = [{"seed": seed} for seed in range(1000)]
    games = notes.environment().run_trial(tasks, notes.player()).rollouts
    steps = [step for game in games for step in game.episodes[0].steps]
    texts = [text for step in steps for text in (step.observation, step.action)]
    return notes.environment(build_tokenizer(texts))


def a_task_for_each_box(env):
    boxes = {}
    for seed in range(200):
        boxes.setdefault(env._initialize_episode("", {"seed": seed})["box"], {"seed": seed})
    assert len(boxes) == env.config.choices
    return list(boxes.values())


def test_the_best_play_with_notes_opens_the_right_box(notes, env):
    tasks = [{"seed": seed} for seed in range(60)]
    batch = env.run_trial(tasks, notes.player(looks=1, notes=1, uses=1))
    assert batch["final_rewards"] == [1.0] * 60
    assert {len(rollout.rows) for rollout in batch.rollouts} == {2}
    lengths = {rollout.rows[0].spans[-1].start for rollout in batch.rollouts}
    assert len(lengths) > 1, "every limit of the range ends the conversation at the same place"


def test_the_best_play_without_memory_opens_one_box_of_eight(notes, env):
    """Whatever it did before, without a word in its notes the last action reads the same in all
    tasks; so an agent without memory is a box to open. All eight are played in all eight tasks."""
    tasks = a_task_for_each_box(env)
    for first in (notes.LOOK, notes.GO):
        scores, read = [], set()
        for box in range(1, env.config.choices + 1):

            def play(messages, first=first, box=box, read=read):
                texts = [m["content"] for m in messages]
                if texts[-1].endswith(notes.NOTE):
                    return notes.NOTHING
                if texts[-1].endswith(notes.ARRIVED):
                    read.add(tuple(texts))
                    return notes.opening(box)
                return first if len(messages) == 1 else notes.GO

            scores.append(np.mean(env.run_trial(tasks, ScriptedAgent(play))["final_rewards"]))
        assert scores == [1 / 8] * 8
        # Two texts: the note was taken one step earlier or later (the limit is the task's).
        assert len(read) <= 2 and not any("in box" in text for texts in read for text in texts)


def test_the_masked_arm_differs_in_the_tokens_of_notes_alone(notes, env):
    player = notes.player(looks=0.5, notes=0.5, uses=0.9)
    batch = env.run_trial([{"seed": k} for k in range(8)], player, 4)
    table = credit.table_of(batch.rollouts)
    trained, masked = (credit.credit_steps(table, name).value for name in notes.ARMS.values())
    assert not masked[table.reflection].any() and trained[table.reflection].any()
    assert (masked == trained)[~table.reflection].all()


def test_both_arms_train(notes):
    begun = notes.start(**SMALL)
    for estimator in notes.ARMS.values():
        model, rewards = notes.train(begun, estimator, seed=0, updates=1)
        assert len(rewards) == 1
    assert set(notes.measure(model, begun.tokenizer)) == {
        "score",
        "ci95",
        "looks",
        "noted",
        "notes",
    }
