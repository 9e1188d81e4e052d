"""Whether a model can learn from its own games at all: legal actions, and differing rewards."""

from collections.abc import Mapping

from agentsgym.envs import ConfigError

LEAST_LEGAL, LEAST_SIGNAL = 0.1, 0.05
"""Shares of legal actions and of groups with signal; below both there is nothing to learn from."""
MOST_TASKS = 8
"""Tasks at most that are played before the first evaluation, a group of games each."""


class NoSignal(ConfigError):
    """Training was stopped at its beginning; the message says what to do."""


def _shares(figures: Mapping[str, float]) -> tuple[float, float]:
    """Of actions that are neither `malformed` nor `unparsed`, and of groups whose rewards
    differ."""
    legal = 1.0 - figures.get("malformed", 0.0) - figures.get("unparsed", 0.0)
    return max(0.0, legal), 1.0 - figures.get("groups_without_signal", 0.0)


def signal_text(figures: Mapping[str, float]) -> str:
    """Both shares in words."""
    legal, signal = _shares(figures)
    return f"{legal:.1%} of the actions are legal, {signal:.0%} of the groups have signal"


def check_signal(figures: Mapping[str, float], when: str) -> None:
    """Raise NoSignal if both shares are near zero in games played `when`; not without figures."""
    legal, signal = _shares(figures)
    if figures and legal < LEAST_LEGAL and signal < LEAST_SIGNAL:
        raise NoSignal(
            f"stopped {when}, because RL has nothing to learn from: "
            f"{signal_text(figures)}. Warm-start the model first (warm_start.source=teacher, "
            "optimal, random, rollouts or chat; more games or epochs if it was), or train anyway "
            "with signal_check=false"
        )
