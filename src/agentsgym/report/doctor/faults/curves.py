"""What metrics and evaluations show over training."""

import math
from statistics import fmean

from agentsgym.evaluation.trends import Curve, rise, said
from agentsgym.report.doctor.evidence import Evidence, Signs, has_won, share

_LEAST_WON = 0.95
_LEAST_FALL = 0.03
# An exploring policy has tenths of a nat; at 0.02 one in some 300 tokens is another one.
_LEAST_ENTROPY, _LEAST_ENTROPY_LEFT = 0.02, 0.1
# Forty updates of a tiny model at a learning rate of 2e-3 move its weights by 0.2 of their size.
_LEAST_MOVED = 0.03
# Shares of single steps are too noisy to date a fall.
_LEAST_STEADY = 3
# A run that learns makes more of its way than the interval of some 100 games is wide.
_LEAST_WAY = 0.2
# Twelve small games of 300 to 2,000 tasks earned at most 24 % less on held-out tasks; one that was
# learned by heart 52 % less.
_LEAST_GAP = 0.3


def reference_loses(evidence: Evidence) -> Signs | None:
    """Best known play loses, or earns no more than the model before training."""
    lines = []
    for label, every in evidence.evaluations.items():
        for name, one in (every.environments or {"": every}).items():
            best, reward, of = one.reference, one.reward, f"{name}: " if name else ""
            if best is None or reward is None:
                continue
            if best < _LEAST_WON and _pays_wins(evidence, name):
                lines.append(f"{of}best known play wins {share(best)} of the held-out tasks")
            elif label == "before" and best <= reward:
                lines.append(
                    f"{of}best known play earns {best:.3g} on the held-out tasks, and the model "
                    f"{reward:.3g} before training"
                )
    return Signs(tuple(dict.fromkeys(lines))) if lines else None


def _pays_wins(evidence: Evidence, name: str) -> bool:
    """Whether the reward of an environment is the share of wins wherever both were measured: that
    of a policy that never does what costs something is so too."""
    every = [(one.environments or {}).get(name, one) for one in evidence.evaluations.values()]
    reward, wins = evidence.curve("reward"), evidence.curve("win_rate")
    if not all(one.win_rate == one.reward for one in every):
        return False
    if name or reward is None or wins is None:
        return True
    return reward.steps == wins.steps and all(map(math.isclose, reward.values, wins.values))


def reward_against_wins(evidence: Evidence) -> Signs | None:
    """The reward rises and wins fall."""
    reward, wins = evidence.curve("reward"), evidence.curve("win_rate")
    if reward is None or wins is None or rise(reward) <= 0 or rise(wins) > -_LEAST_FALL:
        return None
    lines = (
        f"reward {reward.early.mean:.3g} in {reward.early}, {reward.recent.mean:.3g} in "
        f"{reward.recent}",
        f"win rate {share(wins.early.mean)} and then {share(wins.recent.mean)}",
    )
    return Signs(
        lines,
        (wins.early.first, wins.recent.last),
        lambda one: (r for r in one.live if r.final_reward > 0 and has_won(r) is False),
    )


def entropy_gone(evidence: Evidence) -> Signs | None:
    """Hardly any entropy is left."""
    curve = evidence.curve("entropy")
    if curve is None or not curve.is_long:
        return None
    early, recent = curve.early, curve.recent
    if recent.mean >= _LEAST_ENTROPY and recent.mean >= _LEAST_ENTROPY_LEFT * early.mean:
        return None
    line = (
        f"entropy {early.mean:.3g} nats per token in {early}, {recent.mean:.3g} in {recent}; it "
        f"first fell below half at step {_half_at(curve):.0f}"
    )
    return Signs((line,), (early.first, recent.last))


def _half_at(curve: Curve) -> float:
    """The step around which some values first have a mean below half of the beginning's."""
    width = max(_LEAST_STEADY, len(curve.values) // 20)
    for first in range(len(curve.values) - width + 1):
        if fmean(curve.values[first : first + width]) < curve.early.mean / 2:
            return curve.steps[first + width // 2]
    return math.inf


def rate_too_small(evidence: Evidence) -> Signs | None:
    """All updates together, if they had one direction, move the weights less than this, and what
    is played stays as it was: weights differ in what they change."""
    curve = evidence.curve("update_size")
    if curve is None or not curve.is_long or not 0 < sum(curve.values) < _LEAST_MOVED:
        return None  # without a gradient it is not the rate
    if any(rise(one) for one in map(evidence.curve, ("entropy", "malformed")) if one is not None):
        return None
    entropy = evidence.curve("entropy")
    if entropy is not None and _half_at(entropy) < math.inf:  # it may have risen again
        return None
    moved = f"{sum(curve.values):.2%} of their size"
    return Signs((f"{len(curve.values)} updates moved the weights by {moved}",), curve.whole.steps)


def informing_vanishes(evidence: Evidence) -> Signs | None:
    """Half as many actions inform as at the beginning, and it is not that the entropy fell first,
    which leaves one action of any kind."""
    entropy = evidence.curve("entropy")
    for name in ("informing/free_shots", "informing"):
        curve = evidence.curve(name)
        if curve is not None and rise(curve) < 0 and curve.recent.mean < curve.early.mean / 2:
            if entropy is not None and _half_at(entropy) < _half_at(curve):
                return None
            line = f"{name}: {share(curve.early.mean)} in {curve.early}, "
            return Signs(
                (f"{line}{share(curve.recent.mean)} in {curve.recent}",), curve.whole.steps
            )
    return None


def known_by_heart(evidence: Evidence) -> Signs | None:
    """Training tasks earn far more than held-out ones."""
    curve, end = evidence.curve("reward"), evidence.end
    if curve is None or end is None or "after" not in evidence.evaluations:
        return None
    recent = curve.recent
    gap = recent.mean - end.mean
    if gap <= max(2 * math.hypot(recent.error, end.error), _LEAST_GAP * abs(recent.mean)):
        return None
    line = (
        f"it earns {recent.mean:.3g} in {recent}, and {end.mean:.3g} ± {2 * end.error:.2g} on "
        "held-out tasks"
    )
    return Signs((line,), recent.steps)


def not_learning(evidence: Evidence) -> Signs | None:
    """Too little of the way is made, or a player that always acts alike is as good."""
    curve, way, end = evidence.curve("reward"), evidence.way, evidence.end
    if curve is None or not curve.is_long or end is None:
        return None
    always = {n: r for n, r in evidence.players.items() if n.startswith("always")}
    as_good = [name for name, reward in always.items() if end.mean - 2 * end.error <= reward]
    too_short = rise(curve) <= 0 if way is None else way[1] < _LEAST_WAY
    if not (too_short or as_good):
        return None
    lines = [f"the reward in training {said(curve)}"]
    if way is not None:
        lines.append(f"{way[0]:.0%} to {way[1]:.0%} of the way from the start to the best is made")
    lines.append(f"at the end it earns {end.mean:.3g} ± {2 * end.error:.2g}")
    lines += [f"a player earns {reward:.3g} by {name}" for name, reward in evidence.players.items()]
    return Signs(tuple(lines), curve.whole.steps)
