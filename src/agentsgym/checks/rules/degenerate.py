"""The rewards of degenerate players, compared with the best play."""

from agentsgym.checks.constants import Score, score, yardstick
from agentsgym.checks.context import Context
from agentsgym.checks.players import RandomPlayer, copycat
from agentsgym.checks.report import Finding
from agentsgym.envs.known_game import known_play

NEAR = 0.8
"""A degenerate player is close to the best play if it covers this fraction of the distance from the
worst degenerate player to the best play."""


def degenerate_players(context: Context) -> Finding:
    """The rewards of three players (always the same, copy the observation, random) and the best.

    Never fails, but warns if one of them comes close to the best play: a model learns nothing from
    such a reward.
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
        text += "; best play is the upper bound of reward_range"
    return Finding("degenerate players", True, text, _warnings(scores, best), numbers)


def _best(context: Context, tasks: list) -> tuple[float | None, bool]:  # type: ignore[type-arg]
    """Mean reward of the best play, and whether `reference_score` gives it."""
    known_scores = known_play(context.env).reference_score
    scores = [known_scores(task) for task in tasks]
    known = [value for value in scores if value is not None]
    if len(known) == len(tasks):
        return sum(known) / len(known), True
    high = context.env.reward_range[1]
    return (high, False) if high < float("inf") else (None, False)


def _warnings(scores: dict[str, Score], best: float | None) -> tuple[str, ...]:
    if best is None:
        return ("neither reference_score nor reward_range gives the reward of the best play",)
    worst = min(min(each.mean for each in scores.values()), 0.0)
    if best <= worst:
        return ()
    return tuple(
        f"{name} earns {each.mean:.3g}, the best play {best:.3g}"
        for name, each in scores.items()
        if (each.mean - worst) / (best - worst) >= NEAR
    )
