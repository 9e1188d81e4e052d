"""The check that rewards are finite numbers within the declared range."""

import math

from agentsgym.checks.context import Context
from agentsgym.checks.players import Always, RandomPlayer
from agentsgym.checks.playing import play_alone
from agentsgym.checks.records import Record, last_line
from agentsgym.checks.report import Finding

_NAME = "rewards"
_SLACK = 1e-9


def rewards(context: Context) -> Finding:
    """No episode raises; each earns a finite reward within `reward_range`."""
    tasks = context.tasks(3)
    records = []
    for nonsense in (0.0, 0.3):
        player = RandomPlayer(context.seed + 1, nonsense=nonsense)
        records += play_alone(context.make(None), tasks, player)
    records += play_alone(context.make(None), tasks[:2], Always(""))
    failed = [record for record in records if record.error]
    if failed:
        text = f"{len(failed)} of {len(records)} episodes raised: {last_line(failed[0].error)}"
        return Finding(_NAME, False, text)
    return _in_range(context, records)


def _in_range(context: Context, records: list[Record]) -> Finding:
    low, high = context.env.reward_range
    low -= context.env.config.malformed_penalty * _most_malformed(records)
    earned = [record.reward for record in records]
    outside = [r for r in earned if not low - _SLACK <= r <= high + _SLACK or not math.isfinite(r)]
    if outside:
        text = f"{len(outside)} of {len(earned)} episode rewards are outside [{low:g}, {high:g}]"
        return Finding(_NAME, False, f"{text}: {outside[0]:g}")
    undeclared = math.isinf(high)
    warnings = ("reward_range has no upper bound; please declare one",) if undeclared else ()
    text = (
        f"{min(earned):g} to {max(earned):g} in {len(earned)} episodes, within [{low:g}, {high:g}]"
    )
    return Finding(_NAME, True, text, warnings)


def _most_malformed(records: list[Record]) -> int:
    return max(sum(record.malformed) for record in records)
