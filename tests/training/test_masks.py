"""Masks of tokens at which policy and sampler are far apart: by hand, in the loss, in training."""

from types import SimpleNamespace

import pytest
import torch

from agentsgym.training.loss.masks import MASKS, SamplerGap, bounds_of, kept_by
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


def test_tokens_without_log_probabilities_of_their_sampler_count_as_on_policy():
    logps, far = torch.tensor([-1.0, -1.0]), torch.tensor([-5.0, -5.0])
    sampled, advantages = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0])
    chunk = SimpleNamespace(sampler_logps=far, sampled=sampled, advantages=advantages)
    kept = kept_by(bounds_of(TIGHT), logps, chunk)
    assert [keep.tolist() for keep in kept.values()] == [[True, False]] * len(TIGHT)


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
