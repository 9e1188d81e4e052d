"""What the page shows of rollouts: the list, one rollout with its conversation, tokens and credit,
and the difference between two sets."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agentsgym.credit import ESTIMATORS
from agentsgym.evaluation import Difference, assess, compare
from agentsgym.evaluation.metrics import record
from agentsgym.report.credit import compare_credit
from agentsgym.report.stored import Contents, Effects, Source, groups
from agentsgym.runs.files import StoredRollout
from agentsgym.types import Episode, Rollout, Row, Step
from agentsgym.types.reward_placement import per_token_rewards
from agentsgym.types.rows import Floats, StepNumbers, TokenRecord, chosen
from agentsgym.types.text import plain

Json = dict[str, Any]
Credit = dict[str, dict[tuple[int, int], float | None]]
"""Estimator → (episode, step) → the number that it gives the step; None if it is not stored."""

# -- the list --------------------------------------------------------------------------------------

_LONGEST_LABEL = 120
_UNINTERESTING = ("seed",)


def index_entry(line: StoredRollout, recorded: bool) -> Json:
    """One rollout in the list. `key` is equal for equal tasks and numbers in the group, also in
    another run; `recorded` says whether the trainer's numbers are stored for its tokens."""
    rollout = line.rollout
    summary = record(rollout)
    return {
        "group": rollout.group,
        "rollout": rollout.index,
        "env": rollout.env_class_path,
        "reward": number(rollout.final_reward),
        "win": summary.win,
        "stop": list(dict.fromkeys(summary.stop_reasons)),
        "steps": summary.steps,
        "tokens": summary.agent_tokens,
        "rows": summary.rows,
        "malformed": summary.malformed,
        "truncated": summary.truncated,
        "failed": rollout.failed,
        "task": task_label(rollout),
        "key": task_key(rollout),
        "recorded": recorded,
    }


def set_figures(lines: Sequence[StoredRollout]) -> Json:
    """The set's mean reward and win rate with 95 % intervals over tasks with the same solution."""
    figures = assess([line.rollout for line in lines])
    return {
        "reward": figures.reward,
        "reward_ci95": list(figures.reward_ci95),
        "win_rate": figures.win_rate,
        "win_rate_ci95": None if figures.ci95 is None else list(figures.ci95),
        "failures": figures.failures,
        "clusters": figures.clusters,
    }


def task_label(rollout: Rollout) -> str:
    """The task in a few words: its values without the seed."""
    task = rollout.task_data
    values = {k: v for k, v in task.items() if k not in _UNINTERESTING} or task
    if set(values) == {"solution"}:
        text = str(values["solution"])
    else:
        text = ", ".join(f"{name}: {_short(value)}" for name, value in values.items())
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"


def task_key(rollout: Rollout) -> str:
    """Equal for the same task and the same number in its group."""
    identity = [rollout.env_class_path, plain(rollout.task_data), rollout.index]
    text = json.dumps(identity, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def number(value: float) -> float | None:
    """Five digits of a number; None if it is not finite."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


# -- one rollout -----------------------------------------------------------------------------------


def block_data(lines: Sequence[StoredRollout], source: Source, contents: Contents) -> Json:
    """A block of whole groups of a set's contents: the rollouts and the texts of their tokens."""
    ids = [token for line in lines for row in line.rollout.rows for token in row.token_ids.tolist()]
    texts = source.pieces.of(ids)
    return {
        "rollouts": [
            one
            for members in groups(lines)
            for one in _group_data(members, source.estimator, contents)
        ],
        "pieces": {str(token): text for token, text in texts.items()},
        "special": sorted(source.pieces.special.intersection(texts)),
    }


def _group_data(
    members: Sequence[StoredRollout], estimator: str | None, contents: Contents
) -> list[Json]:
    rollouts = [line.rollout for line in members]
    credit = group_credit(members, estimator) if members[0].phase == "train" else {}
    anchors = _anchors(rollouts)
    entries = []
    for line in members:
        data = _rollout_data(line, credit.get(line.rollout.index, {}), anchors)
        _add_effects(data, line.rollout.session_id, contents.effects)
        _add_record(data, line.rollout, contents.records.get(line.rollout.session_id))
        entries.append(data)
    return entries


def _add_effects(data: Json, session_id: str, effects: Effects) -> None:
    """What was measured of each step: as credit "replay", and with what the policy does else."""
    steps = {
        (session_id, episode, place): step
        for episode, one in enumerate(data["episodes"])
        for place, step in enumerate(one["steps"])
    }
    for key, step in steps.items() if steps.keys() & effects.keys() else ():
        effect = effects.get(key)
        value = None if effect is None else number(effect.effect)
        step["credit"] = step.get("credit", {}) | {"replay": value}
        step["replay"] = effect and asdict(effect)


def _add_record(data: Json, rollout: Rollout, record: TokenRecord | None) -> None:
    """The trainer's numbers at each step whose tokens they fit."""
    if record is None:
        return
    for row in rollout.rows:
        for span in row.spans:
            numbers = record.steps.get(span.key)
            entry = None if numbers is None else _numbers(numbers, span.length)
            if entry is not None:
                data["episodes"][span.episode]["steps"][span.step]["record"] = entry


def _numbers(numbers: StepNumbers, length: int) -> Json | None:
    columns = asdict(numbers)
    if any(values is not None and len(values) != length for values in columns.values()):
        return None
    return {
        name: None if values is None else [number(value) for value in values]
        for name, values in columns.items()
    }


def _anchors(rollouts: Sequence[Rollout]) -> dict[str, tuple[int, int]]:
    """For each anchor state that several steps of the group share: its number in the group, and
    how many steps share it."""
    counts = Counter(
        step.anchor
        for rollout in rollouts
        for episode in rollout.episodes
        for step in episode.steps
        if step.anchor is not None
    )
    shared = [(anchor, count) for anchor, count in counts.items() if count > 1]
    return {anchor: (n, count) for n, (anchor, count) in enumerate(shared, start=1)}


def _rollout_data(
    line: StoredRollout, credit: Credit, anchors: Mapping[str, tuple[int, int]]
) -> Json:
    rollout = line.rollout
    advantages = line.advantages or [None] * len(rollout.rows)
    return {
        "session_id": rollout.session_id,
        "seed": str(rollout.seed),  # above 2^53 a browser would round it
        "policy_version": rollout.policy_version,
        "env_config": plain(rollout.env_config),
        "task_data": plain(rollout.task_data),
        "error": rollout.error,
        "episodes": [_episode_data(e, credit, anchors) for e in rollout.episodes],
        "rows": [
            _row_data(row, rewards, values)
            for row, rewards, values in zip(
                rollout.rows, per_token_rewards(rollout), advantages, strict=True
            )
        ],
    }


def _episode_data(episode: Episode, credit: Credit, anchors: Mapping[str, tuple[int, int]]) -> Json:
    return {
        "reward": number(episode.reward),
        "scored": episode.score_weight > 0,
        "win": episode.win,
        "stop": episode.stop_reason,
        "system": episode.system,
        "steps": [_step_data(step, episode.index, credit, anchors) for step in episode.steps],
    }


def _step_data(
    step: Step, episode: int, credit: Credit, anchors: Mapping[str, tuple[int, int]]
) -> Json:
    data: Json = {
        "observation": step.observation,
        "action": step.action,
        "reward": number(step.reward),
    }
    optional = {
        "kind": step.kind if step.kind != "action" else None,
        "malformed": step.malformed,
        "truncated": step.truncated,
        "info": plain(step.info),
        "anchor": anchors.get(step.anchor) if step.anchor is not None else None,
        "credit": {
            name: None if (value := by_step.get((episode, step.index))) is None else number(value)
            for name, by_step in credit.items()
        },
    }
    return data | {name: value for name, value in optional.items() if value}


def _row_data(row: Row, rewards: Floats, advantages: Floats | None) -> Json:
    """A row's tokens. `logprobs`, `rewards` and `advantages` have one number for each token in the
    spans, one span after the other."""
    places = [place for span in row.spans for place in range(span.start, span.stop)]
    return {
        "begins": row.begins,
        "rewrites": row.rewrites,
        "sampled": row.sampled,
        "ids": row.token_ids.tolist(),
        "spans": [[span.episode, span.step, span.start, span.stop] for span in row.spans],
        "logprobs": _numbers_at(row.logprobs, places),
        "rewards": _numbers_at(rewards, places),
        "advantages": None if advantages is None else _numbers_at(advantages, places),
    }


def _numbers_at(values: Any, places: Sequence[int]) -> list[float | None]:
    return [number(value) for value in values[places].tolist()]


# -- credit ----------------------------------------------------------------------------------------


def group_credit(members: Sequence[StoredRollout], used: str | None) -> dict[int, Credit]:
    """Each rollout's credit, by its number in the group.

    Estimators that read the policy's probabilities of other actions or a critic's values, which
    are not stored, have numbers only in a run that was trained with them (`used`): the stored
    advantages.
    """
    credits: dict[int, Credit] = {
        line.rollout.index: {
            name: _stored(line) if name == used and estimator.reads_policy else {}
            for name, estimator in ESTIMATORS.items()
        }
        for line in members
    }
    for step in compare_credit([line.rollout for line in members]):
        for name, value in step.credit.items():
            credits[step.rollout][name][step.episode, step.step] = value
    return credits


def _stored(line: StoredRollout) -> dict[tuple[int, int], float | None]:
    """The stored advantage of each step with agent tokens."""
    if line.advantages is None:
        return {}
    return {
        span.key: float(advantages[at[0]])
        for row, advantages in zip(line.rollout.rows, line.advantages, strict=True)
        for span, at in zip(row.spans, chosen(row.spans, row.supports), strict=True)
        if len(at)
    }


# -- a comparison ----------------------------------------------------------------------------------


def comparison(left: Sequence[StoredRollout], right: Sequence[StoredRollout]) -> Json | None:
    """The differences right minus left over all pairs; None if there are no pairs, or if the sets
    number their tasks differently."""
    waiting: dict[str, list[Rollout]] = {}
    for line in right:
        waiting.setdefault(task_key(line.rollout), []).append(line.rollout)
    pairs = [
        (line.rollout, others.pop(0))
        for line in left
        if (others := waiting.get(task_key(line.rollout)))
    ]
    if not pairs:
        return None
    try:
        result = compare([second for _, second in pairs], [first for first, _ in pairs])
    except ValueError:
        return None
    return {
        "pairs": result.pairs,
        "clusters": result.clusters,
        "reward": _difference(result.reward),
        "win_rate": None if result.win_rate is None else _difference(result.win_rate),
    }


def _difference(difference: Difference) -> Json:
    known = all(map(math.isfinite, difference.interval))
    return {
        "difference": number(difference.difference),
        "interval": [number(end) for end in difference.interval] if known else None,
        "shown": difference.shown,
    }
