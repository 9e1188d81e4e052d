"""`zero_signal_groups="replay"`: earlier groups in the place of groups without signal."""

import numpy as np
import pytest
import torch

from agentsgym import task_dataset
from agentsgym.training.loss.batch import make_rollouts
from agentsgym.training.replay import ReplayBuffer
from helpers import CountdownEnv, DigitEnv
from of_rows import Drawn, rollout_of

SIZE = 2


def generation(number, *signals, error=None):
    """A generation of groups of two rollouts with or without signal; each token id is its number,
    and the advantages say the group."""
    played, advantages = [], []
    for group, _ in enumerate(signals):
        for index in range(SIZE):
            row = Drawn([number] * 3, [(0, 0, 1, 3)], [0.0, -0.5, -0.5])
            name = f"{number}-{group}-{index}"
            one = rollout_of(rows=[row], group=group, index=index, session_id=name, error=error)
            played.append(one)
            advantages.append(np.array([0.0, 1.0, 1.0]) * (group + 1))
    in_loss = [has for has in signals for _ in range(SIZE)]
    return make_rollouts(played, advantages, in_loss)


def names(rollouts):
    return [rollout.played.session_id for rollout in rollouts[::SIZE]]


def fill(buffer, number, *signals):
    filled, ages = buffer.fill(generation(number, *signals), number)
    assert [r.played.index for r in filled] == [0, 1] * len(signals)
    return names(filled), ages


def test_the_newest_groups_take_the_places_each_once():
    buffer = ReplayBuffer(SIZE, max_age=2)
    assert fill(buffer, 0, True, False, True) == (["0-0-0", "0-1-0", "0-2-0"], [])
    assert fill(buffer, 1, False, True, True) == (["0-0-0", "1-1-0", "1-2-0"], [1])
    assert fill(buffer, 2, False, False, False) == (["1-1-0", "1-2-0", "0-0-0"], [1, 1, 2])
    assert fill(buffer, 3, False, False, False) == (["1-1-0", "1-2-0", "3-2-0"], [2, 2])
    assert fill(buffer, 4, False, True, True) == (["4-0-0", "4-1-0", "4-2-0"], [])


def test_a_training_that_begins_again_replays_nothing_of_the_one_before():
    buffer = ReplayBuffer(SIZE, max_age=9)
    fill(buffer, 3, True)
    assert fill(buffer, 0, False)[1] == [] and fill(buffer, 1, False)[1] == []


def test_a_replayed_group_is_as_it_was_played(tmp_path):
    """What training wrote into it is gone, also after a checkpoint."""
    buffer = ReplayBuffer(SIZE, max_age=1)
    given = generation(0, True)
    before, _ = buffer.fill(given, 0)
    for rollout in before:
        rollout.rows[0].logps["old"] = torch.ones(2)
        rollout.rows[0].weights["policy"] = 9.0
    buffer.save(tmp_path / "groups.pt")
    loaded = ReplayBuffer(SIZE, max_age=1)
    loaded.load(tmp_path / "groups.pt")
    for own in (buffer, loaded):
        replayed, ages = own.fill(generation(1, False), 1)
        assert ages == [1] and all(r.replayed and r.in_loss for r in replayed)
        for rollout, played in zip(replayed, given, strict=True):
            (row,), (expected,) = rollout.rows, played.rows
            assert row.logps == row.weights == {}
            assert row.spans == expected.spans and row.sampled is expected.sampled
            for name in ("token_ids", "logprobs", "advantages"):
                assert np.array_equal(getattr(row, name), getattr(expected, name))
                assert getattr(row, name).dtype == getattr(expected, name).dtype


# -- in the trainer -------------------------------------------------------------------------------


def mixed(chat_tokenizer):
    """Tasks that a digit wins, and as many in which all earn the same."""
    digits = task_dataset(DigitEnv(chat_tokenizer), [{"seed": k} for k in range(12)])
    same = task_dataset(CountdownEnv(chat_tokenizer), [{"rewards": [0.0]} for _ in range(12)])
    return [row for pair in zip(digits, same, strict=True) for row in pair]


REPLAY = {"zero_signal_groups": "replay", "per_device_train_batch_size": 16}


def steps_of(rollouts):
    return np.mean([sum(len(e.steps) for e in r.episodes) for r in rollouts])


def logs_of(trainer):
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def test_the_update_is_on_what_was_replayed(make_trainer, chat_tokenizer):
    """Corrected by the ratio to the sampler's log-probabilities, which the update before changed;
    what was played is reported as it was played."""
    trainer = make_trainer(dataset=mixed(chat_tokenizer), max_steps=6, **REPLAY)
    updates, weigh = [], trainer.weigh_rollouts

    def keep(parts):
        updates.append([r for part in parts for r in part])
        weigh(parts)

    trainer.weigh_rollouts = keep
    trainer.train()
    played = trainer.played.steps()
    for step, (entry, rollouts) in enumerate(zip(logs_of(trainer), updates, strict=True)):
        replayed = [r for r in rollouts if r.replayed]
        assert entry["replay/share"] == len(replayed) / 16
        own = {r.session_id for r in played[step]}
        earlier = {r.session_id: r for s in range(step) for r in played[s]}
        assert len(own) == 16 and entry["steps"] == steps_of(played[step])
        for rollout in replayed:
            then = earlier[rollout.played.session_id]
            assert np.array_equal(rollout.rows[0].token_ids, then.rows[0].token_ids)
            assert rollout.rows[0].weights["policy"] > 0
        if replayed:
            assert 1 <= entry["replay/age"] <= 4
            assert entry["sampler/logp_difference"] > 1e-4
    assert sum(entry["replay/share"] > 0 for entry in logs_of(trainer)) >= 3


def test_later_updates_measure_the_old_policy_of_what_is_replayed(make_trainer, chat_tokenizer):
    """Not the sampler's, which is older; the ratio of the first update on them is 1."""
    trainer = make_trainer(
        dataset=mixed(chat_tokenizer), max_steps=6, num_iterations=1, steps_per_generation=2,
        learning_rate=5e-2, **(REPLAY | {"per_device_train_batch_size": 8}),
    )  # fmt: skip
    seen, fill_old = [], trainer.loss.fill_old

    def keep(rollouts, model):
        fill_old(rollouts, model)
        seen.append(rollouts)

    trainer.loss.fill_old = keep
    trainer.train()
    replayed = [row for rollouts in seen for r in rollouts if r.replayed for row in r.rows]
    assert replayed
    for row in replayed:
        assert np.abs(row.logps["old"].numpy() - row.logprobs[row.positions]).max() > 1e-3


def test_a_resumed_run_makes_the_same_updates(twice, chat_tokenizer):
    options = {"max_steps": 8, "num_iterations": 2, **REPLAY}
    whole, resumed = (
        [entry.get("replay/share") for entry in logs_of(trainer)]
        for trainer in twice(4, dataset=mixed(chat_tokenizer), **options)
    )
    assert whole[4] > 0  # the first generation after the checkpoint replays
    assert resumed == whole


def test_what_replay_does_not_work_with(make_trainer):
    with pytest.raises(ValueError, match="needs sampler_correction"):
        make_trainer(zero_signal_groups="replay", sampler_correction="none")
