"""What no limit of a metric shows: the rules of single faults, the rollouts to look at, and what
rollouts say beside the metrics, by the names of the faults in `faults.yaml`."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentsgym.credit.table import differ
from agentsgym.evaluation import Evaluation
from agentsgym.report.doctor.evidence import (
    Evidence,
    Group,
    Signs,
    comparable,
    has_won,
    rise,
    share,
)
from agentsgym.report.stored import Contents
from agentsgym.types import Rollout, Step
from agentsgym.types.text import short_repr

_LONGEST = 60


def _actions(rollouts: Iterable[Rollout]) -> Iterator[Step]:
    return (step for r in rollouts for episode in r.episodes for step in episode.actions)


# -- calls of tools --------------------------------------------------------------------------------

_RAN = 0.01
"""Share of the calls."""


def calls_never_run(evidence: Evidence) -> Signs | None:
    """Calls were begun, and hardly any has a result."""
    names = ("attempted", "parsed", "executed")
    begun, parsed, executed = (evidence.curve(f"tool_calls/{name}") for name in names)
    ran = parsed if executed is None else executed
    if begun is None or ran is None or begun.recent.mean <= 0:
        return None
    if ran.recent.mean >= _RAN * begun.recent.mean:
        return None
    read = 0.0 if parsed is None else parsed.recent.mean / begun.recent.mean
    lines = (
        f"{begun.recent.mean:.2g} calls per action were begun in {begun.recent}",
        f"{share(read)} of them could be read",
    )
    return Signs(lines, begun.recent.steps, _calling)


def _calling(one: Contents) -> Iterable[Rollout]:
    return (r for r in one.live if any(_calls(step.info) for step in _actions([r])))


def _calls(info: Mapping[str, Any]) -> bool:
    metrics = info.get("metrics")
    return isinstance(metrics, Mapping) and bool(metrics.get("tool_calls/attempted"))


# -- rewards ---------------------------------------------------------------------------------------

_LEAST_WON = 0.95


def reference_loses(evidence: Evidence) -> Signs | None:
    """Best known play loses, or earns no more than the model before training."""
    lines = [
        line
        for label, figures in evidence.evaluations.items()
        for name, part in figures.environments.items() or [("", figures)]
        for line in _reference_line(label, f"{name}: " if name else "", part)
    ]
    return Signs(tuple(dict.fromkeys(lines))) if lines else None


def _reference_line(label: str, of: str, figures: Evaluation) -> Iterator[str]:
    reference, reward = figures.reference, figures.reward
    if reference is None or reward is None:
        return
    if figures.win_rate == reward and reference < _LEAST_WON:
        yield f"{of}best known play wins {share(reference)} of the held-out tasks"
    elif label == "before" and reference <= reward:
        yield (
            f"{of}best known play earns {reference:.3g} on the held-out tasks, and the model "
            f"{reward:.3g} before training"
        )


_LEAST_FALL = 0.03
"""Of the win rate."""


def gradient_not_finite(evidence: Evidence) -> Signs | None:
    """The gradient's norm was no finite number in the last step."""
    norms = evidence.metrics["values"].get("grad_norm", ())
    lines = zip(evidence.metrics["phase"], evidence.metrics["step"], norms, strict=False)
    last, norm = ([(step, norm) for phase, step, norm in lines if phase == "train"] or [(0, 0)])[-1]
    if norm is not None:
        return None
    said = [f"grad_norm is infinite or NaN in step {last}"]
    if (std := evidence.curve("reward_std")) is not None:
        said.append(f"reward_std is {std.recent.mean:.3g} in {std.recent}")
    return Signs(tuple(said), (last, last))


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
    return Signs(lines, (wins.early.first, wins.recent.last), _best_lost)


def _best_lost(one: Contents) -> Iterable[Rollout]:
    """The lost rollouts, those with the highest reward first."""
    lost = [rollout for rollout in one.live if has_won(rollout) is False]
    return sorted(lost, key=lambda rollout: -rollout.final_reward)


_MOST_WITHOUT_SIGNAL = 0.5
"""Share of groups that may have no signal, those with nothing to learn not counted."""


def no_signal(evidence: Evidence) -> Signs | None:
    """Most groups have one reward, and too little of it."""
    sets = evidence.recent
    every = [members for one in sets for members in comparable(one)]
    without = [members for members in every if _is_equal(members)]
    stuck = [members for members in without if not _is_learned(members, evidence)]
    if not every or len(stuck) / len(every) < _MOST_WITHOUT_SIGNAL:
        return None
    rewards = sorted(members[0].final_reward for members in stuck)
    lines = [
        f"{len(stuck)} of {len(every)} groups that were read have one reward (median "
        f"{rewards[len(rewards) // 2]:.3g}); {len(without) - len(stuck)} more are won"
    ]
    reward, best = evidence.curve("reward"), evidence.reference
    if reward is not None and best is not None:
        lines.append(
            f"reward {reward.recent.mean:.3g} in {reward.recent}; the reference player's {best:.3g}"
        )
    silent = evidence.curve("groups_without_signal")
    if silent is not None:
        lines.append(
            f"groups_without_signal is {share(silent.recent.mean)} in {silent.recent}, and was "
            f"{share(silent.values[0])} in step {silent.steps[0]}"
        )

    def look_at(one: Contents) -> Iterable[Rollout]:
        groups = (members for members in comparable(one) if _is_equal(members))
        return (members[0] for members in groups if not _is_learned(members, evidence))

    return Signs(tuple(lines), _steps_of(sets), look_at)


def _is_equal(members: Group) -> bool:
    return not differ(rollout.final_reward for rollout in members)


def _is_learned(members: Group, evidence: Evidence) -> bool:
    """Whether a group that earns the same has nothing to learn: all of it is won (of an environment
    without wins: it earns the run's highest reward), and that is enough."""
    wins = [has_won(rollout) for rollout in members]
    best = evidence.highest
    reward = members[0].final_reward
    won = best is not None and reward >= best if set(wins) == {None} else all(wins)
    least = evidence.enough
    return won and (least is None or evidence.is_solved or reward >= least)


# -- the policy ------------------------------------------------------------------------------------

_MOST_SAME, _LEAST_ACTIONS, _LEAST_TASKS = 0.9, 30, 2


def one_action(evidence: Evidence) -> Signs | None:
    """Nearly all actions are the same."""
    sets = evidence.recent
    actions = _texts(sets)
    tasks = len({(one.of.id, rollout.group) for one in sets for rollout in one.live})
    if actions.total() < _LEAST_ACTIONS or tasks < _LEAST_TASKS or evidence.is_solved:
        return None
    action, count = actions.most_common(1)[0]
    now = count / actions.total()
    if now < _MOST_SAME:
        return None
    lines = [
        f"{share(now)} of {actions.total()} actions on {tasks} tasks are "
        f"{short_repr(action, _LONGEST)}"
    ]
    before = _texts(evidence.early)
    if before:
        lines.append(f"{share(before[action] / before.total())} at the beginning of training")
    return Signs(tuple(lines), _steps_of(sets), lambda one: _only(one, action))


def _only(one: Contents, action: str) -> Iterable[Rollout]:
    """The rollouts that consist of this action, the longest first."""
    texts = {id(r): [step.action.strip() for step in _actions([r])] for r in one.live}
    alike = [rollout for rollout in one.live if set(texts[id(rollout)]) <= {action}]
    return sorted(alike, key=lambda rollout: -len(texts[id(rollout)]))


def _texts(sets: Sequence[Contents]) -> Counter[str]:
    return Counter(step.action.strip() for one in sets for step in _actions(one.live))


def _steps_of(sets: Sequence[Contents]) -> tuple[int, int]:
    """The optimizer steps of generations, of which the newest is first."""
    return sets[-1].of.step + 1, sets[0].of.step + 1


_LEAST_ENTROPY, _LEAST_ENTROPY_LEFT = 0.02, 0.1
"""Nats per token, and share of the entropy at the beginning."""


def entropy_gone(evidence: Evidence) -> Signs | None:
    """Hardly any entropy is left."""
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
    lines = (
        f"entropy {early.mean:.3g} nats per token in {early}, {recent.mean:.3g} in {recent}",
        f"it first fell below half at step {half}",
    )
    return Signs(lines, (early.first, recent.last))


# -- beside limits of metrics ----------------------------------------------------------------------

LookAt = Callable[[Contents], Iterable[Rollout]]
"""The rollouts of a set that show a fault."""


def _recorded(one: Contents) -> Iterable[Rollout]:
    """The rollouts of which the viewer shows the trainer's numbers."""
    return (rollout for rollout in one.live if rollout.session_id in one.records)


def _most_rows(one: Contents) -> Iterable[Rollout]:
    broken = [r for r in one.live if any(row.begins == "template" for row in r.rows)]
    return sorted(broken, key=lambda rollout: -len(rollout.rows))


def _with_changed_calls(one: Contents) -> Iterable[Rollout]:
    return (r for r in one.live if any(row.begins in ("history", "tools") for row in r.rows))


LOOK_AT: Mapping[str, LookAt] = {
    "rollouts_fail": lambda one: (line.rollout for line in one.lines if line.rollout.failed),
    "malformed_actions": lambda one: (
        rollout for rollout in one.live if any(step.unread for step in _actions([rollout]))
    ),
    "truncated_actions": lambda one: (
        rollout
        for rollout in one.live
        if any(step.truncated for episode in rollout.episodes for step in episode.steps)
    ),
    "sampler_mismatch": _recorded,
    "ratios_clipped": _recorded,
    "tokens_masked": _recorded,
    "rows_break": _most_rows,
    "calls_break": _with_changed_calls,
}


def _errors(evidence: Evidence) -> Iterator[str]:
    """The most frequent error of each environment."""
    counts: dict[str, Counter[str]] = {}
    for one in evidence.recent:
        for rollout in LOOK_AT["rollouts_fail"](one):
            line = str(rollout.error).strip().splitlines()[-1:] or [""]
            counts.setdefault(rollout.env_class_path, Counter())[line[0]] += 1
    for name, errors in counts.items():
        error, count = errors.most_common(1)[0]
        yield f"{name}: {short_repr(error, 160)} ({count} of {errors.total()} that were read)"


def _frequent(evidence: Evidence) -> Iterator[str]:
    """The most frequent malformed actions."""
    live = (rollout for one in evidence.recent for rollout in one.live)
    counts = Counter(step.action for step in _actions(live) if step.unread)
    if counts:
        most = ", ".join(f"{short_repr(a, _LONGEST)} ({n})" for a, n in counts.most_common(3))
        yield f"the most frequent: {most}"


def _programs(evidence: Evidence) -> Iterator[str]:
    """The programs that change what they sent."""
    configs = [r.env_config for one in evidence.recent for r in _with_changed_calls(one)]
    names = {str(c.get("function") or " ".join(c.get("command") or ())) for c in configs}
    if names - {""}:
        yield f"the program: {', '.join(sorted(names - {''}))}"


MORE: Mapping[str, Callable[[Evidence], Iterator[str]]] = {
    "rollouts_fail": _errors,
    "malformed_actions": _frequent,
    "calls_break": _programs,
}
"""More evidence, from the rollouts of the end of training."""

RULES: Mapping[str, Callable[[Evidence], Signs | None]] = {
    rule.__name__: rule
    for rule in (
        reference_loses,
        calls_never_run,
        gradient_not_finite,
        reward_against_wins,
        one_action,
        entropy_gone,
        no_signal,
    )
}
"""The faults without limits of metrics."""
