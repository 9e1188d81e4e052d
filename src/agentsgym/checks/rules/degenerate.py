"""What do players earn that do not play?"""

from agentsgym.checks.constants import Score, score, yardstick
from agentsgym.checks.context import Context
from agentsgym.checks.players import RandomPlayer, copycat
from agentsgym.checks.report import Finding

NEAR = 0.8
"""A degenerate player is near the best play when it gets this part of the way from the worst
degenerate player to it."""


def degenerate_players(context: Context) -> Finding:
    """Always the same, copy the observation, random: their rewards beside the best play's.

    Never fails, but warns where one of them comes near the best play: such a reward teaches
    nothing.
    """
    measured = yardstick(context)
    tasks = measured.tasks
    random_player = RandomPlayer(context.seed, nonsense=0.0)
    scores = {
        "always the same": measured.best,
        "copy the observation": score(context, "copy the observation", copycat, tasks),
        "random": score(context, "random", random_player, tasks),
    }
    best, known = _best(context, list(tasks))
    numbers = {name: each.mean for name, each in scores.items()}
    if best is not None:
        numbers["best play"] = best
    shown = ", ".join(f"{name} {value:.3g}" for name, value in numbers.items())
    text = f"{shown} (mean of {len(tasks)} tasks; same: {measured.best.player!r:.40})"
    if best is not None and not known:
        text += "; best play is the upper end of reward_range"
    return Finding("degenerate players", True, text, _warnings(scores, best), numbers)


def _best(context: Context, tasks: list) -> tuple[float | None, bool]:  # type: ignore[type-arg]
    """Mean reward of the best play, and whether the environment says so."""
    scores = [context.env.reference_score(task) for task in tasks]
    known = [value for value in scores if value is not None]
    if len(known) == len(tasks):
        return sum(known) / len(known), True
    high = context.env.reward_range[1]
    return (high, False) if high < float("inf") else (None, False)


def _warnings(scores: dict[str, Score], best: float | None) -> tuple[str, ...]:
    if best is None:
        return ("neither reference_score nor reward_range says what the best play earns",)
    worst = min(min(each.mean for each in scores.values()), 0.0)
    if best <= worst:
        return ()
    return tuple(
        f"{name} earns {each.mean:.3g}, the best play {best:.3g}"
        for name, each in scores.items()
        if (each.mean - worst) / (best - worst) >= NEAR
    )
