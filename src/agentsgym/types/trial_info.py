"""What an environment and an agent are told about the trial that an episode belongs to."""

from dataclasses import dataclass, field, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """How an earlier episode of the trial ended: the raw `reward`, whether it was a `win` (None
    where the environment does not tell), and the `stop_reason`, each as in `Episode`."""

    reward: float
    win: bool | None
    stop_reason: str


@dataclass(frozen=True, slots=True)
class TrialInfo:
    """Episode number `episode` (from 0) of a trial of `episodes`, as it begins.

    The first `free_shots` episodes are played and not scored. `carry` is the configuration's: what
    the agent sees of earlier episodes ("none", "full", "summary"). `outcomes` holds one entry for
    each earlier episode. `last_state` is the environment's own state at the end of the episode
    before, None in the first; agents are not given it.
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
        """Whether the agent sees anything of the earlier episodes."""
        return self.carry != "none"

    def without_state(self) -> Self:
        """The same without `last_state`: a state may keep this, for it holds no other state."""
        return replace(self, last_state=None)

    def at(self, episode: int) -> Self:
        """What was known as an earlier episode of this trial began, without its `last_state`."""
        return replace(self, episode=episode, outcomes=self.outcomes[:episode], last_state=None)

    def round_line(self, same: str) -> str:
        """Where the trial stands ("Round 2 of 3, scored, same code."), for the prompt of an agent
        that knows its earlier episodes; empty where it knows none. `same` names what stays."""
        if not self.carries or self.episodes == 1:
            return ""
        kind = "scored" if self.scored else "practice"
        stays = f", {same}" if self.episode else ""
        return f"Round {self.episode + 1} of {self.episodes}, {kind}{stays}."
