"""One rollout with everything that the page shows of it: conversation, tokens, credit."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentsgym.report.viewer.group_credit import Credit, group_credit
from agentsgym.report.viewer.index import number
from agentsgym.report.viewer.pieces import Pieces
from agentsgym.report.viewer.rollout_set import groups
from agentsgym.runs.files import StoredRollout
from agentsgym.types import Episode, Rollout, Row, Step, StepSpan
from agentsgym.types.records import Floats, StepNumbers, TokenRecord
from agentsgym.types.reward_placement import per_token_rewards
from agentsgym.types.text import plain

Json = dict[str, Any]


def block_data(
    lines: Sequence[StoredRollout],
    pieces: Pieces,
    records: Mapping[str, TokenRecord],
    estimator: str | None = None,
) -> Json:
    """A block of whole groups: the rollouts and the texts of their tokens. `estimator` is the one
    that the run was trained with."""
    rollouts = [
        found for members in groups(lines) for found in _group_data(members, records, estimator)
    ]
    ids = [token for line in lines for row in line.rollout.rows for token in row.token_ids.tolist()]
    texts = pieces.of(ids)
    return {
        "rollouts": rollouts,
        "pieces": {str(token): text for token, text in texts.items()},
        "special": sorted(pieces.special.intersection(texts)),
    }


def _group_data(
    members: Sequence[StoredRollout], records: Mapping[str, TokenRecord], estimator: str | None
) -> list[Json]:
    rollouts = [line.rollout for line in members]
    credit = group_credit(members, estimator) if members[0].phase == "train" else {}
    anchors = _anchors(rollouts)
    found = []
    for line in members:
        data = _rollout_data(line, credit.get(line.rollout.index, {}), anchors)
        _add_record(data, line.rollout, records.get(line.rollout.session_id))
        found.append(data)
    return found


def _add_record(data: Json, rollout: Rollout, record: TokenRecord | None) -> None:
    """The trainer's numbers at each step whose tokens they fit."""
    if record is None:
        return
    for row in rollout.rows:
        for span in row.spans:
            numbers = record.steps.get(span.key)
            told = None if numbers is None else _numbers(numbers, span.length)
            if told is not None and _has_step(rollout, span):
                data["episodes"][span.episode]["steps"][span.step]["record"] = told


def _has_step(rollout: Rollout, span: StepSpan) -> bool:
    """A span of a foreign file may name any step."""
    episodes = rollout.episodes
    return 0 <= span.episode < len(episodes) and 0 <= span.step < len(episodes[span.episode].steps)


def _numbers(numbers: StepNumbers, length: int) -> Json | None:
    given = {
        "logprobs": numbers.logprobs,
        "ratios": numbers.ratios,
        "entropies": numbers.entropies,
    }
    if any(values is not None and len(values) != length for values in given.values()):
        return None
    return {
        name: None if values is None else [number(value) for value in values]
        for name, values in given.items()
    }


def _anchors(rollouts: Sequence[Rollout]) -> dict[str, tuple[int, int]]:
    """For each anchor state that several steps of the group share: its number in the group, and
    how many steps share it."""
    counts: dict[str, int] = {}
    for rollout in rollouts:
        for episode in rollout.episodes:
            for step in episode.steps:
                if step.anchor is not None:
                    counts[step.anchor] = counts.get(step.anchor, 0) + 1
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
            _row_data(row, rewards, given)
            for row, rewards, given in zip(
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
            name: _known(by_step.get((episode, step.index))) for name, by_step in credit.items()
        },
    }
    return data | {name: value for name, value in optional.items() if value}


def _known(value: float | None) -> float | None:
    return None if value is None else number(value)


def _row_data(row: Row, rewards: Floats, advantages: Floats | None) -> Json:
    """A row's tokens. `runs` are the stretches [start, stop] that carry numbers; `logprobs`,
    `rewards` and `advantages` have one for each token in them, and `mask` whether it is trained."""
    runs = _runs(row, rewards, advantages)
    places = [place for start, stop in runs for place in range(start, stop)]
    mask = row.agent_token_mask
    return {
        "begins": row.begins,
        "rewrites": row.rewrites,
        "sampled": row.sampled,
        "ids": row.token_ids.tolist(),
        "spans": [[span.episode, span.step, span.start, span.stop] for span in row.spans],
        "runs": runs,
        "mask": mask[places].tolist(),
        "logprobs": _at(row.logprobs.tolist(), places),
        "rewards": _at(rewards.tolist(), places),
        "advantages": None if advantages is None else _at(advantages.tolist(), places),
    }


def _runs(row: Row, rewards: Floats, advantages: Floats | None) -> list[list[int]]:
    shown = (row.agent_token_mask != 0) | (row.logprobs != 0) | (rewards != 0)
    for span in row.spans:
        shown[span.start : span.stop] = True
    if advantages is not None:
        shown |= advantages != 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], shown, [False]])))
    runs: list[list[int]] = edges.reshape(-1, 2).tolist()
    return runs


def _at(values: Sequence[float], places: Sequence[int]) -> list[float | None]:
    return [number(values[place]) for place in places]
