"""A sampler that computes other probabilities than the trainer."""

import math
from collections.abc import Iterable, Iterator, Mapping

from agentsgym.report.doctor.evidence import Evidence, PlayedSet, named, share
from agentsgym.report.doctor.finding import Finding
from agentsgym.types import Rollout
from agentsgym.types.records import TokenRecord

_MOST_NATS, _MOST_OFF, _MOST_CAPPED = 0.05, 0.05, 0.05
"""Mean absolute difference of log-probabilities; the mean ratio's distance from 1; share of rows
whose ratio is capped. bfloat16 engines differ by about 0.01 nats."""


def sampler_mismatch(evidence: Evidence) -> Finding | None:
    """Sampler and trainer disagree about the sampled tokens."""
    told = tuple(_logged(evidence))
    gaps = _gaps(evidence)
    worst = max(gaps.values(), default=0.0)
    if not told and (sum(gaps.values()) / max(1, len(gaps))) < _MOST_NATS:
        return None
    curve = evidence.curve("sampler/logp_difference") or evidence.curve("sampler/ratio")
    recorded = (
        [f"in the {len(gaps)} rollouts with token records, up to {worst:.3g} nats per token"]
        if gaps
        else []
    )
    return Finding(
        "sampler_mismatch",
        "The sampler's probabilities are not the trainer's, so the gradient is biased.",
        (*told, *recorded),
        (
            "one precision for both (dtype of the model and of the server)",
            "does the server have the newest weights, the same chat template and sampling "
            "settings? (docs/engines.md)",
            "fresher rollouts: fewer train.steps_per_generation, no prefetching",
            "train.sampler_cap, which limits what a rollout can weigh until the cause is found",
        ),
        named(evidence.recent, lambda one: _worst(one, gaps)),
        curve.recent.steps if curve else None,
    )


def _logged(evidence: Evidence) -> Iterator[str]:
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


def _gaps(evidence: Evidence) -> Mapping[str, float]:
    """Mean absolute difference by session, of the recent rollouts with token records."""
    return {
        rollout.session_id: gap
        for one in evidence.recent
        for rollout in one.live
        if (known := one.records.get(rollout.session_id))
        and (gap := _gap(rollout, known)) is not None
    }


def _gap(rollout: Rollout, known: TokenRecord) -> float | None:
    differences = [
        abs(sampled - trained)
        for row in rollout.rows
        if row.sampled
        for span in row.spans
        if (numbers := known.steps.get(span.key)) is not None
        for sampled, trained in zip(
            row.logprobs[span.start : span.stop].tolist(), numbers.logprobs, strict=False
        )
        if math.isfinite(sampled) and math.isfinite(trained)
    ]
    return sum(differences) / len(differences) if differences else None


def _worst(one: PlayedSet, gaps: Mapping[str, float]) -> Iterable[Rollout]:
    known = [rollout for rollout in one.live if rollout.session_id in gaps]
    return sorted(known, key=lambda rollout: -gaps[rollout.session_id])
