"""What is known of a trial when one of its episodes begins."""

from dataclasses import dataclass, field, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """The end of an earlier episode of the trial: the raw `reward`, whether it was a `win` (None
    if the environment does not report wins), and the `stop_reason`, each as in `Episode`."""

    reward: float
    win: bool | None
    stop_reason: str


@dataclass(frozen=True, slots=True)
class TrialInfo:
    """Episode number `episode` (from 0) of a trial of `episodes`, as it begins.

    The first `free_shots` episodes are played but not scored. `carry` is the configuration's: the
    part of earlier episodes that the agent sees ("none", "full", "summary"). `outcomes` has one
    entry for each earlier episode. `last_state` is the environment's own state at the end of the
    previous episode, None in the first; agents do not get it.
    """

    episode: int = 0
    episodes: int = 1
    free_shots: int = 0
    carry: str = "none"
    outcomes: tuple[EpisodeOutcome, ...] = ()
    last_state: Any = field(default=None, compare=False, repr=False)

    @property
    def scored(self) -> bool:
        """Whether the episode's reward counts."""
        return self.episode >= self.free_shots

    @property
    def carries(self) -> bool:
        """Whether the agent sees any part of the earlier episodes."""
        return self.carry != "none"

    def without_state(self) -> Self:
        """A copy without `last_state`: a state may store it, because it contains no other state."""
        return replace(self, last_state=None)

    def at(self, episode: int) -> Self:
        """The information at the start of an earlier episode, without its `last_state`."""
        return replace(self, episode=episode, outcomes=self.outcomes[:episode], last_state=None)

    def round_line(self, same: str) -> str:
        """The position in the trial ("Round 2 of 3, scored, same code."), for the prompt of an
        agent that sees its earlier episodes; else "". `same` names the part that stays equal."""
        if not self.carries or self.episodes == 1:
            return ""
        kind = "scored" if self.scored else "practice"
        stays = f", {same}" if self.episode else ""
        return f"Round {self.episode + 1} of {self.episodes}, {kind}{stays}."
