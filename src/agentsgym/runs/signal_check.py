"""Whether a model can learn from its own games at all: legal actions, and differing rewards."""

from collections.abc import Mapping

from agentsgym.envs import ConfigError

LEAST_LEGAL, LEAST_SIGNAL = 0.1, 0.05
"""Shares of legal actions and of groups with signal; below both there is nothing to learn from."""
MOST_TASKS = 8
"""Tasks at most that are played before the first evaluation, a group of games each."""


class NoSignal(ConfigError):
    """Training was stopped at its beginning; the message says what to do."""


def legal_share(figures: Mapping[str, float]) -> float:
    """The share of actions that are neither `malformed` nor `unparsed`."""
    return max(0.0, 1.0 - figures.get("malformed", 0.0) - figures.get("unparsed", 0.0))


def signal_share(figures: Mapping[str, float]) -> float:
    """The share of groups whose rewards differ."""
    return 1.0 - figures.get("groups_without_signal", 0.0)


def is_hopeless(figures: Mapping[str, float]) -> bool:
    """Whether both shares are near zero."""
    return legal_share(figures) < LEAST_LEGAL and signal_share(figures) < LEAST_SIGNAL


def signal_text(figures: Mapping[str, float]) -> str:
    """Both shares in words."""
    return (
        f"{legal_share(figures):.1%} of the actions are legal, "
        f"{signal_share(figures):.0%} of the groups have signal"
    )


def check_signal(figures: Mapping[str, float], when: str) -> None:
    """Raise NoSignal if the figures of games played `when` are hopeless."""
    if figures and is_hopeless(figures):
        raise advice(figures, when)


def advice(figures: Mapping[str, float], when: str) -> NoSignal:
    """The error that stops a run; `when` says when the games were played."""
    return NoSignal(
        f"stopped {when}, because RL has nothing to learn from: "
        f"{signal_text(figures)}. Warm-start the model first (warm_start.source=teacher, optimal, "
        "random, rollouts or chat; more games or epochs if it was), or train anyway with "
        "signal_check=false"
    )
