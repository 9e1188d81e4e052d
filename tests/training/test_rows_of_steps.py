"""The rows that are trained on: views of the rollouts' rows, with loss where their steps say."""

import numpy as np
import pytest
import torch

from agentsgym.training.loss.batch import collate, make_rollouts
from of_rows import Drawn, rollout_of
from training.cells import random_rollouts


@pytest.mark.parametrize("train_on", ["rollout", "steps"])
def test_rows_share_the_memory_of_what_was_played(train_on):
    played = random_rollouts(8, vocabulary=50)
    wholes = [row for rollout in played for row in rollout.rows]
    advantages = [np.ones(len(row.token_ids)) for row in wholes]
    made = make_rollouts(played, advantages, [True] * 8, train_on)
    seen = 0
    for rollout in made:
        for row in rollout.rows:
            sources = [w for w in wholes if np.shares_memory(w.token_ids, row.token_ids)]
            assert len(sources) == 1 and np.shares_memory(sources[0].logprobs, row.logprobs)
            assert sum(np.shares_memory(values, row.advantages) for values in advantages) == 1
            seen += 1
    if train_on == "steps":
        assert seen == sum(len(w.spans) for w in wholes if not w.failed)
    else:
        assert seen == len(wholes)


def places(rows):
    """What is trained on: (token, advantage), in any order."""
    chunk = collate(rows, torch.device("cpu"))
    return sorted(zip(chunk.targets.tolist(), chunk.advantages.tolist(), strict=True))


def test_each_sampled_token_carries_loss_once_however_rows_are_cut():
    """By hand: tokens 10 to 15 with the steps 1 to 3 and 4 to 6; a failed rollout has no loss, nor
    has the first token of a row, which has no probability."""
    row = Drawn(range(10, 16), [(0, 0, 1, 3), (0, 1, 4, 6)])
    played = [
        rollout_of(rows=[row], index=0),
        rollout_of(rows=[row], index=1, error="boom"),
        rollout_of(rows=[Drawn((10, 11), [(0, 0, 0, 2)])], index=2),
    ]
    advantages = [np.arange(6.0), np.arange(6.0), np.arange(2.0)]
    for train_on in ("rollout", "steps"):
        made = make_rollouts(played, advantages, [True, False, True], train_on)
        assert [rollout.agent_tokens for rollout in made] == [4, 0, 1]
        rows = [row for rollout in made for row in rollout.rows]
        assert places(rows) == [(11, 1.0), (11, 1.0), (12, 2.0), (14, 4.0), (15, 5.0)]
        assert {row.session_id for row in rows if row.agent_tokens} == {"0-0", "0-2"}
