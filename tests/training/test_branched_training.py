"""Training with branches: who plays on from whom, and what is paid."""

import copy

import numpy as np
import pytest

from agentsgym.credit import advantages
from agentsgym.envs import ConfigError, task_dataset
from agentsgym.rollout.drive import run_complete_episode
from agentsgym.types import RolloutBatch
from helpers import CountdownEnv, random_llama
from training.test_ahead import CopyEngine

WON = {"rewards": [0.0, 1.0, 0.0]}
TRIALS = {"episodes_per_trial": 2, "free_shots": 1, "carry": "full"}
OPTIONS = {"branches": 1, "advantage_estimator": "branch", "max_steps": 2}


class LuckyEnv(CountdownEnv):
    """An episode is over where the action has an even number of letters; the last one earns 1 for
    each letter. `moods` are said in the second prompt, one after the other."""

    moods = ()

    def _format_prompt(self, state, step):
        said = super()._format_prompt(state, step)
        if step == 1 and self.moods:
            return f"{said}, {next(self.moods)}"
        return said

    def _step_episode(self, session_id, state, action):
        state, _, done, info = super()._step_episode(session_id, state, action)
        over = len(state["played"]) > 1 and len(action) % 2 == 0
        return state, float(len(action)), done or over, info


@pytest.fixture
def branched(make_trainer, chat_tokenizer):
    """Returns a function that makes a trainer."""

    def make(config=TRIALS, kind=LuckyEnv, rewards=(0.0, 0.0, 0.0), **options):
        env = kind(chat_tokenizer, config)
        tasks = task_dataset(env, [{"rewards": list(rewards)}] * 4)
        if options.get("max_staleness"):
            options["model"] = random_llama(chat_tokenizer)
            options["engine"] = CopyEngine(options["model"], chat_tokenizer, capacity=3)
        return make_trainer(env=env, dataset=tasks, envs=[env], **(OPTIONS | options))

    return make


def families(rollouts, size=2):
    return [rollouts[k : k + size] for k in range(0, len(rollouts), size)]


@pytest.mark.parametrize("where", ["first", "even"])
def test_each_trunk_is_followed_by_its_branches(branched, where):
    trainer = branched(branch_where=where)
    trainer.train()
    for rollouts in trainer.played.steps().values():
        assert [(r.group, r.index) for r in rollouts] == [(g, i) for g in (0, 1) for i in range(4)]
        for trunk, branch in families(rollouts):
            assert branch.session_id.startswith(f"{trunk.session_id}@{branch.replayed}-")
            assert branch.steps[: branch.replayed] == trunk.steps[: branch.replayed]
            assert branch.replayed < len(trunk.steps) and not branch.failed
            # One that was over before the place that was drawn is left at its beginning.
            assert where == "even" or branch.replayed == int(len(trunk.steps) > 1)
            keys = [span.key for row in branch.rows for span in row.spans]
            assert len(keys) == len(branch.steps) - branch.replayed
    played = [rollout for one in trainer.played.steps().values() for rollout in one]
    assert sum(rollout.replayed > 0 for rollout in played) > len(played) / 4
    logged = trainer.state.log_history[0]
    replayed = sum(r.replayed for r in trainer.played.steps()[0])
    assert logged["branches/replayed_steps"] == replayed
    assert logged["branches/share"] == 1.0  # nothing is known of earlier generations yet
    every = sum(len(r.steps) for r in trainer.played.steps()[0])
    assert logged["branches/steps"] == every - replayed


def test_the_tokens_get_what_the_estimator_says(branched):
    trainer, given = branched(max_steps=1), []
    trainer.rollout_sink = lambda rollouts, info: given.append((rollouts, info["advantages"]))
    trainer.train()
    ((rollouts, ours),) = given
    theirs = advantages(RolloutBatch(tuple(rollouts)), "branch")
    assert any(row.any() for row in ours)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other)


def test_trunks_without_a_second_action_are_followed_by_other_rollouts(branched):
    trainer = branched({}, CountdownEnv, (1.0,), max_steps=1)
    trainer.train()
    played = trainer.played.rollouts()
    assert [r.replayed for r in played] == [0] * 8 and not any(r.failed for r in played)
    assert len({r.session_id for r in played}) == 8
    assert trainer.state.log_history[0]["branches/share"] == 0.0


def test_what_another_environment_says_ends_the_branch_with_a_sentence(branched):
    trainer = branched(max_steps=1)
    kind = type(trainer.batches._collector.envs.made[0])
    kind.moods = iter(map(str, range(100)))
    try:
        trainer.train()
    finally:
        kind.moods = ()
    for trunk, branch in families(trainer.played.rollouts()):
        assert not trunk.failed and "cannot be played on from" in branch.error
    assert trainer.state.global_step == 1


def test_a_resumed_run_branches_as_the_whole_one(branched, tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "branch_where": "even"}
    trainer = branched(**saving)
    start = copy.deepcopy(trainer.model.state_dict())
    trainer.train()
    whole = {r.session_id: r.token_ids.tolist() for r in trainer.played.steps()[3]}
    trainer.model.load_state_dict(start)
    resumed = branched(**saving)
    resumed.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    again = {r.session_id: r.token_ids.tolist() for r in resumed.played.steps()[3]}
    assert again == whole


def test_trunks_are_played_ahead_and_branches_when_they_are_due(branched):
    trainer = branched(max_staleness=1, max_steps=3, learning_rate=1e-3)
    trainer.train()
    for step, rollouts in trainer.played.steps().items():
        for trunk, branch in families(rollouts):
            assert branch.session_id.startswith(f"{trunk.session_id}@1-")
            assert step - 1 <= trunk.policy_version <= branch.policy_version == step


def test_groups_without_signal_are_played_again_with_their_branches(branched):
    trainer = branched(kind=CountdownEnv, zero_signal_groups="resample", max_steps=1)
    trainer.train()
    for trunk, branch in families(trainer.played.rollouts()):
        assert branch.session_id.startswith(f"{trunk.session_id}@1-")


def test_an_environment_that_plays_itself_is_refused(branched):
    class Alone(LuckyEnv):
        def _run_complete_episode(self, session_id, agent):
            return run_complete_episode(self, session_id, agent)

    with pytest.raises(ConfigError, match=r"branches=1: .* plays its episodes itself"):
        branched(kind=Alone)
