"""What goes wrong in the policy: it collapses, or moves too far from the one that was sampled."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from agentsgym.report.doctor.evidence import Evidence, Fault, examples, share
from agentsgym.report.stored import Contents
from agentsgym.types import Rollout

_MOST_SAME, _LEAST_ACTIONS, _LEAST_TASKS = 0.9, 30, 2
_LONGEST = 60


def one_action(evidence: Evidence) -> Fault | None:
    """90 % of the actions are the same text, and the game is not won."""
    sets = evidence.recent
    actions = _actions(sets)
    if sum(actions.values()) < _LEAST_ACTIONS or _tasks(sets) < _LEAST_TASKS or evidence.is_solved:
        return None
    action, count = actions.most_common(1)[0]
    now = count / actions.total()
    if now < _MOST_SAME:
        return None
    before = _actions(evidence.early)
    text = action if len(action) <= _LONGEST else f"{action[:_LONGEST]}…"
    return Fault(
        "The policy has collapsed: nearly every action is the same.",
        (
            f"{share(now)} of {actions.total()} actions on {_tasks(sets)} tasks are {text!r}",
            *(
                [f"{share(before[action] / before.total())} at the beginning of training"]
                if before
                else []
            ),
        ),
        (
            "an earlier checkpoint, with a lower train.learning_rate",
            "a KL penalty (train.beta above 0), a higher train.temperature",
            "the reward: does this action earn something on every task?",
        ),
        examples(sets, lambda one: _only(one, action)),
        (sets[-1].of.step + 1, sets[0].of.step + 1),
    )


def _actions(sets: Sequence[Contents]) -> Counter[str]:
    return Counter(
        step.action.strip()
        for one in sets
        for rollout in one.live
        for episode in rollout.episodes
        for step in episode.actions
    )


def _tasks(sets: Sequence[Contents]) -> int:
    return len({(one.of.id, rollout.group) for one in sets for rollout in one.live})


def _only(one: Contents, action: str) -> Iterable[Rollout]:
    """The rollouts that consist of this action, the longest first."""
    rollouts = [
        rollout
        for rollout in one.live
        if all(s.action.strip() == action for e in rollout.episodes for s in e.actions)
    ]
    return sorted(rollouts, key=lambda rollout: -sum(len(e.actions) for e in rollout.episodes))


_LEAST_ENTROPY, _LEAST_ENTROPY_LEFT = 0.02, 0.1
"""Nats per token, and share of the entropy at the beginning."""


def entropy_gone(evidence: Evidence) -> Fault | None:
    """Entropy under 0.02 nats or a tenth of the beginning's, and the game is not won."""
    curve = evidence.curve("entropy")
    if curve is None or not curve.is_long or evidence.is_solved:
        return None
    early, recent = curve.early, curve.recent
    if recent.mean >= _LEAST_ENTROPY and recent.mean >= _LEAST_ENTROPY_LEFT * early.mean:
        return None
    half = next(
        (s for s, v in zip(curve.steps, curve.values, strict=True) if v < early.mean / 2),
        recent.first,
    )
    return Fault(
        "The policy's entropy is gone, so it explores no more, and it does not win yet.",
        (
            f"entropy {early.mean:.3g} nats per token in {early}, {recent.mean:.3g} in {recent}",
            f"it first fell below half at step {half}",
        ),
        (
            f"continue from a checkpoint before step {half} with a lower train.learning_rate",
            "a higher train.temperature, a KL penalty (train.beta above 0)",
            "a larger epsilon_high, so that unlikely tokens can gain (DAPO's clip-higher)",
        ),
        (),
        (early.first, recent.last),
    )


_MOST_CLIPPED, _LEAST_ESS = 0.1, 0.3
"""Means over the whole run: what was clipped at the beginning has done its harm too."""


def ratios_clipped(evidence: Evidence) -> Fault | None:
    """10 % of the agent tokens are clipped, or the effective sample size is under 0.3, both over
    the whole run."""
    lines = list(_clipping(evidence))
    if not lines:
        return None
    curve = evidence.curve("clipped") or evidence.curve("entropy")
    return Fault(
        "The ratio's limits bite: an update moves the policy far from the one that played.",
        tuple(lines),
        (
            "a lower train.learning_rate",
            "fewer updates of one generation (train.num_iterations, train.steps_per_generation)",
            "wider limits (epsilon, epsilon_high), or ratios of whole steps "
            "(train.ratio_scope=step)",
        ),
        examples(evidence.recent, _recorded),
        curve.whole.steps if curve else None,
    )


def _clipping(evidence: Evidence) -> Iterator[str]:
    clipped = evidence.curve("clipped")
    if clipped is not None and clipped.whole.mean > _MOST_CLIPPED:
        yield (
            f"{share(clipped.whole.mean)} of the agent tokens are clipped in {clipped.whole}, "
            f"{share(clipped.recent.mean)} in {clipped.recent}"
        )
    for name in evidence.names():
        curve = evidence.curve(name) if _is_ess(name) else None
        if curve is not None and curve.whole.mean < _LEAST_ESS:
            yield f"{name} is {curve.whole.mean:.2g} in {curve.whole}; 1 is on-policy"


def _is_ess(name: str) -> bool:
    return name.startswith("ratio/") and name.endswith("_ess")


def _recorded(one: Contents) -> Iterable[Rollout]:
    """The rollouts of which the viewer shows the trainer's numbers."""
    return (rollout for rollout in one.live if rollout.session_id in one.records)


_MOST_NATS, _MOST_OFF, _MOST_CAPPED = 0.05, 0.05, 0.05
"""Mean absolute difference of log-probabilities; the mean ratio's distance from 1; share of rows
whose ratio is capped. bfloat16 engines differ by about 0.01 nats."""


def sampler_mismatch(evidence: Evidence) -> Fault | None:
    """Log-probabilities of sampler and trainer differ by 0.05 nats per token, their mean ratio by
    5 % from 1, or 5 % of the rows are capped."""
    lines = tuple(_differences(evidence))
    if not lines:
        return None
    curve = evidence.curve("sampler/logp_difference") or evidence.curve("sampler/ratio")
    return Fault(
        "The sampler's probabilities are not the trainer's, so the gradient is biased.",
        lines,
        (
            "one precision for both (dtype of the model and of the server)",
            "does the server have the newest weights, the same chat template and sampling "
            "settings? (docs/engines.md)",
            "fresher rollouts: fewer train.steps_per_generation, no prefetching",
            "train.sampler_cap, which limits what a rollout can weigh until the cause is found",
        ),
        examples(evidence.recent, _recorded),
        curve.recent.steps if curve else None,
    )


def _differences(evidence: Evidence) -> Iterator[str]:
    difference = evidence.curve("sampler/logp_difference")
    if difference is not None and difference.recent.mean > _MOST_NATS:
        yield (
            f"log-probabilities differ by {difference.recent.mean:.3g} nats per token in "
            f"{difference.recent} (a few hundredths are rounding)"
        )
    ratio = evidence.curve("sampler/ratio")
    if ratio is not None and abs(ratio.recent.mean - 1.0) > _MOST_OFF:
        yield f"the mean ratio of their probabilities is {ratio.recent.mean:.3g} in {ratio.recent}"
    capped = evidence.curve("sampler/capped_rows")
    if capped is not None and capped.recent.mean > _MOST_CAPPED:
        yield f"{share(capped.recent.mean)} of the rows have a ratio above sampler_cap"
