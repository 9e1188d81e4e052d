"""Runs for the tests of `agentsgym doctor`, written by the library's own writers.

`write_run` writes a healthy run of 40 steps; each test changes what its fault changes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentsgym.evaluation import Evaluation
from agentsgym.runs.files import RolloutWriter, Summary, TokenRecordWriter
from agentsgym.runs.files.records import MetricsFile
from agentsgym.types import Rollout
from agentsgym.types.rows import StepNumbers, TokenRecord
from of_rows import split
from viewer_runs import figures, make_rollout

STEPS = 40
SETS = (0, 1, 2, 20, 34, 36, 38, 39)
"""Generations whose rollouts are written."""

Line = dict[str, Any]
Played = list[Rollout]


def healthy_line(step: int) -> Line:
    """The metrics of a step, counted from 1; wins rise from 20 % to 60 %."""
    done = (step - 1) / (STEPS - 1)
    wiggle = 0.01 * (step % 3 - 1)
    wins = 0.2 + 0.4 * done + wiggle
    return {
        "reward": wins,
        "win_rate": wins,
        "reward_std": 0.45,
        "failed": 0.0,
        "truncated": 0.0,
        "malformed": 0.005,
        "unparsed": 0.0,
        "groups_without_signal": 0.1,
        "steps": 2.0,
        "agent_tokens": 8.0,
        "tokens": 24.0,
        "rows_per_rollout": 1.0,
        "template_breaks": 0.0,
        "stop/done": 1.0,
        "entropy": 1.2 - 0.6 * done + wiggle,
        "clipped": 0.02,
        "ratio/token_ess": 0.98,
        "sampler/logp_difference": 0.01,
        "sampler/ratio": 1.0,
        "sampler/capped_rows": 0.0,
    }


class OneToken:
    """A tokenizer whose texts are all the same token."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return [0]


def play(
    group: int,
    index: int,
    actions: Sequence[str] = ("Is it alive?", "[apple]"),
    *,
    reward: float = 0.0,
    **more: Any,
) -> Rollout:
    """A rollout of one episode, whose last action earns the reward; `more` goes to the maker."""
    *questions, last = actions
    episode = [*(("Ask.", action, 0.0) for action in questions), ("Ask.", last, reward)]
    return make_rollout(OneToken(), group, index, [episode], **more)


def healthy_rollouts(step: int) -> Played:
    """Four groups of four; one or two of each group win, and the actions differ."""
    return [
        play(group, index, (f"Is it {group}?", f"[{index} {step}]"), reward=float(index < 2))
        for group in range(4)
        for index in range(4)
    ]


def record_of(rollout: Rollout, *, gap: float = 0.001, ratio: float = 1.0) -> TokenRecord:
    """The trainer's numbers: `gap` nats above the sampler's."""
    row = rollout.rows[-1]
    steps = {
        span.key: StepNumbers((float(row.logprobs[span.start]) + gap,), (ratio,), (0.7,))
        for span in row.spans
    }
    return TokenRecord(rollout.session_id, steps)


def write_run(
    root: Path,
    line: Callable[[int], Line] = healthy_line,
    rollouts: Callable[[int], Played] = healthy_rollouts,
    *,
    record: Mapping[str, float] | None = None,
    before: Evaluation | None = None,
    after: Evaluation | None = None,
    train: str = "{max_action_tokens: 12}",
) -> Path:
    """A run directory; `record` are the arguments of its token records."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.yaml").write_text(f"env: Puzzle\nname: small\ntrain: {train}\n")
    metrics = MetricsFile(root / "metrics.jsonl")
    for step in range(1, STEPS + 1):
        metrics.append("train", step, line(step))
    for step in SETS:
        played = rollouts(step)
        RolloutWriter(root)(played, {"phase": "train", "step": step, "advantages": None})
        known = [record_of(one, **(record or {})) for one in played[:2]]
        TokenRecordWriter(root)(known, {"step": step})
    Summary(
        name="small",
        seed=0,
        env="Puzzle",
        env_config={},
        model="tiny",
        before=before or figures(),
        after=after,
    ).write(root / "summary.json")
    return root


def breaking(rollout: Rollout) -> Rollout:
    """The rollout in two rows, of which the template began the second."""
    return split(rollout, begins="template", rewrites="thoughts")
