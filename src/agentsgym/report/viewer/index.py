"""The list of rollouts: a few values of each, which the page filters and sorts."""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

from agentsgym.evaluation import assess
from agentsgym.evaluation.metrics import record
from agentsgym.runs.files import StoredRollout
from agentsgym.types import Rollout
from agentsgym.types.text import plain

Json = dict[str, Any]

_LONGEST_LABEL = 120
_UNINTERESTING = ("seed",)


def index_entry(line: StoredRollout, recorded: bool = False) -> Json:
    """One rollout in the list. `key` is equal for equal tasks and numbers in the group, also in
    another run; `recorded` says whether the trainer's numbers are stored for its tokens."""
    rollout = line.rollout
    found = record(rollout)
    return {
        "group": rollout.group,
        "rollout": rollout.index,
        "env": rollout.env_class_path,
        "reward": number(rollout.final_reward),
        "win": found.win,
        "stop": list(dict.fromkeys(found.stop_reasons)),
        "steps": found.steps,
        "tokens": found.agent_tokens,
        "rows": found.rows,
        "malformed": found.malformed,
        "truncated": found.truncated,
        "failed": rollout.failed,
        "episodes": [
            [number(e.reward), e.win, e.stop_reason, e.score_weight > 0] for e in rollout.episodes
        ],
        "task": task_label(rollout),
        "key": task_key(rollout),
        "recorded": recorded,
    }


def set_figures(lines: Sequence[StoredRollout]) -> Json:
    """The set's mean reward and win rate with 95 % intervals over tasks with the same solution."""
    found = assess([line.rollout for line in lines])
    return {
        "reward": found.reward,
        "reward_ci95": list(found.reward_ci95),
        "win_rate": found.win_rate,
        "win_rate_ci95": None if found.ci95 is None else list(found.ci95),
        "failures": found.failures,
        "clusters": found.clusters,
    }


def task_label(rollout: Rollout) -> str:
    """The task in a few words: its values without the seed."""
    told = rollout.task_data
    values = {k: v for k, v in told.items() if k not in _UNINTERESTING} or told
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
    told = [rollout.env_class_path, plain(rollout.task_data), rollout.index]
    text = json.dumps(told, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def number(value: float) -> float | None:
    """Five digits of a number; None if it is not finite."""
    return float(f"{value:.5g}") if math.isfinite(value) else None
