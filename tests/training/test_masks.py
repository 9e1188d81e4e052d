"""Masks of tokens at which policy and sampler are far apart: by hand, in the loss, in training."""

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsgym.training import GRPOEnvConfig
from agentsgym.training.loss.batch import TrainRollout, TrainRow, collate
from agentsgym.training.loss.masks import MASKS, SamplerGap, bounds_of, kept_by
from agentsgym.training.loss.objective import MicroBatchLoss
from of_rows import rollout_of, span_of
from training import reference
from training.cells import Cell
from training.test_gradient_truth import agrees, distance, window

TIGHT = {
    "icepop": [0.6, 1.7],
    "dppo": [0.005],
}
"""Bounds that leave out some tokens of a sampler that is about 0.5 nats away."""
TIGHTER = TIGHT | {"dppo": [0.001]}
"""Also where each token has a probability of about 1/385."""


def gap_of(policy, sampler, advantages):
    """The gap of tokens, given their probabilities."""
    p, q = (torch.tensor(x, dtype=torch.float64).log() for x in (policy, sampler))
    return SamplerGap(p, q, torch.tensor(advantages))


# Ratios 2, 1/2, 1, 4.
FOUR = gap_of([0.4, 0.2, 0.5, 0.8], [0.2, 0.4, 0.5, 0.2], [1.0, 1.0, -1.0, -1.0])


@pytest.mark.parametrize(
    ("name", "bounds", "kept"),
    [
        ("icepop", (0.6, 2.5), [1, 0, 1, 0]),
        ("icepop", (0.4, 4.5), [1, 1, 1, 1]),
        ("icepop", (0.4, 1.5), [0, 1, 1, 0]),
        # π − π_sampler: 0.2, −0.2, 0, 0.6. A rise is left out where A > 0, a fall where A ≤ 0.
        ("dppo", (0.19,), [0, 1, 1, 1]),
        ("dppo", (0.21,), [1, 1, 1, 1]),
    ],
)
def test_masks_by_hand(name, bounds, kept):
    assert MASKS[name].keep(FOUR, *bounds).tolist() == [bool(k) for k in kept]


def test_dppo_leaves_out_a_fall_without_advantage():
    """At A = 0, too, as prime-rl does."""
    gap = gap_of([0.2, 0.2, 0.6], [0.5, 0.5, 0.5], [-1.0, 0.0, 0.0])
    assert MASKS["dppo"].keep(gap, 0.2).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("masks", "words"),
    [
        ({"ice_pop": [0.5, 5.0]}, "unknown key 'off_policy_masks.ice_pop'; did you mean"),
        ({"icepop": [0.5]}, r"off_policy_masks.icepop must be \[lower, upper\], got \[0.5\]"),
        ({"icepop": [5.0, 0.5]}, r"off_policy_masks.icepop must be \[lower, upper\]"),
        ({"dppo": [1.0, 2.0]}, "off_policy_masks.dppo must be one number"),
    ],
)
def test_wrong_bounds_are_refused(masks, words):
    with pytest.raises(ValueError, match=words):
        bounds_of(masks)


# -- rows, chunks, order --------------------------------------------------------------------------


class FixedScorer:
    """Gives each row the policy's log-probabilities that it is made with, in chunks of `size`."""

    def __init__(self, logps, size):
        self.logps, self.size = logps, size
        self.ranks = SimpleNamespace(gather=list)

    def logps_of(self, rows, model):
        return [(row, self.logps[id(row)]) for row in rows]

    def layouts(self, rows, model):
        return [rows[at : at + self.size] for at in range(0, len(rows), self.size)]


def random_rollouts(draw, number):
    """Rollouts of one to three rows with one or two steps each, and the policy's
    log-probabilities by row."""
    rollouts, logps = [], {}
    for _ in range(number):
        rows = []
        for _ in range(draw.randint(1, 3)):
            ends = sorted(draw.sample(range(2, 9), draw.randint(2, 3)))
            spans = [span_of(0, k, a, b) for k, (a, b) in enumerate(itertools.pairwise(ends))]
            sampler = np.array([draw.uniform(-3, 0) for _ in range(9)])
            advantages = np.array([draw.gauss(0, 1) for _ in range(9)])
            ids, sampled = np.arange(9, dtype=np.int32), draw.random() < 0.9
            row = TrainRow(ids, sampler, advantages, tuple(spans), sampled)
            own = [min(x + draw.gauss(0, 0.5), 0.0) for x in sampler]
            logps[id(row)] = torch.tensor(own, dtype=torch.float64)
            rows.append(row)
        rollouts.append(TrainRollout(rollout_of(), rows, True))
    return rollouts, logps


def kept_places(rollouts, logps, size):
    """Mask → the (row, position) of the tokens that it keeps, in chunks of `size` rows."""
    args = GRPOEnvConfig("unused", use_cpu=True, report_to="none", off_policy_masks=TIGHT)
    loss = MicroBatchLoss(FixedScorer(logps, size), args, None)
    result = {name: set() for name in TIGHT}
    for rows in loss.layouts(None, rollouts):
        chunk = collate(rows, torch.device("cpu"), torch.float64)
        own = torch.cat(
            [logps[id(row)][chunk.position[chunk.row == n]] for n, row in enumerate(rows)]
        )
        for name, keep in kept_by(bounds_of(TIGHT), own, chunk).items():
            places = zip(chunk.row[keep.numpy()], chunk.position[keep.numpy()], strict=True)
            result[name] |= {(id(rows[row]), int(at)) for row, at in places}
    return result


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5))
def test_chunks_and_the_order_of_rows_and_rollouts_change_no_mask(seed, number, size):
    draw = random.Random(seed)
    rollouts, logps = random_rollouts(draw, number)
    whole = kept_places(rollouts, logps, 1000)
    assert kept_places(rollouts, logps, size) == whole
    draw.shuffle(rollouts)
    for rollout in rollouts:
        draw.shuffle(rollout.rows)
    assert kept_places(rollouts, logps, size) == whole


def test_a_row_without_log_probabilities_of_its_sampler_counts_as_on_policy():
    rollouts, logps = random_rollouts(random.Random(0), 30)
    kept = kept_places(rollouts, logps, 7)
    unknown = [row for r in rollouts for row in r.rows if not row.sampled]
    places = {(id(row), int(at)) for row in unknown for at in row.positions}
    assert places and all(places <= kept[name] for name in MASKS)


# -- in the loss ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MASKS, "all"])
def test_the_gradient_is_the_references(make_exact, tiny_llama, name):
    masks = TIGHTER if name == "all" else {name: TIGHTER[name]}
    cell = Cell(tiny_llama.double(), 8)
    trainer = make_exact(cell, loss_type="dapo", num_iterations=2, off_policy_masks=masks)
    agrees(trainer, cell)
    share = trainer._metrics["train"]["masked" if name == "all" else f"masked/{name}"]
    assert 0.05 < share[0] < 1


def test_what_is_left_out_does_not_raise_the_weight_of_the_rest(make_exact, tiny_llama):
    """Loss weights are those without masks: the gradient is that of the same rollouts with
    advantage 0 where a mask leaves tokens out."""
    cell = Cell(tiny_llama.double(), 8)
    trainer = make_exact(cell, num_iterations=2, off_policy_masks={"icepop": TIGHT["icepop"]})
    _, masked = window(trainer)
    number = 0
    for rollout in cell.rollouts:
        for row in rollout.rows:
            with torch.no_grad():
                now = reference.log_probabilities(tiny_llama, row.token_ids.tolist())[0]
            ratio = (now - torch.from_numpy(row.logprobs)).exp().numpy()
            low, high = TIGHT["icepop"]
            cell.advantages[number] *= (ratio >= low) & (ratio <= high)
            number += 1
    _, zeroed = window(make_exact(cell, num_iterations=2))
    assert distance(masked, zeroed) < 1e-9


# -- in training ----------------------------------------------------------------------------------


def test_an_engine_with_the_trainers_weights_leaves_nothing_out(make_trainer):
    published = {name: list(mask.published) for name, mask in MASKS.items()}
    trainer = make_trainer(max_steps=1, off_policy_masks=published)
    trainer.train()
    logged = trainer.state.log_history[0]
    assert {logged[name] for name in logged if name.startswith("masked")} == {0.0}
