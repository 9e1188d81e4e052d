"""The players of a warm start side by side: who is imitated, the imitator, a random player, and the
best player that always says the same."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from statistics import fmean, pvariance
from typing import Any

from agentsgym.agents import DirectOutputAgent, ScriptedAgent
from agentsgym.agents.scripted import RandomAgent
from agentsgym.envs.base import MultistepEnv
from agentsgym.generation.factory import make_engine
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.types import Agent, Rollout, SamplingParams

Tasks = Sequence[Mapping[str, Any]]
GAMES = 128
"""Trials of a player: 1 of 128 is 0.8 %, and the standard error of a share at most 4.4 %."""
MOST_CONSTANTS = 12
"""Constant actions that are tried on a quarter of the tasks, the most frequent ones of the random
player and the teacher; the best of them is then played on all."""
BEST = "imitated games"
"""The name of the best of the teacher's games on each task, where only these are imitated."""
ILLEGAL = 0.02
"""How many more of its actions than of its teacher's may be illegal."""
LONGER = "more updates (warm_start.steps)"
"""What an imitator needs that has learned too little, if nothing but their number ended it."""
MORE_GAMES = "more games (warm_start.games) or epochs (warm_start.epochs)"
"""The same of a pretrained model."""
ERRORS = 2.0
"""How many standard errors its reward may be below its teacher's."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A player's share of `legal` actions and its mean `reward` with the standard error; `action`
    is what a constant player says."""

    legal: float
    reward: float
    error: float
    games: int
    action: str = ""

    def __str__(self) -> str:
        says = f" ({self.action!r:.40})" if self.action else ""
        return f"{self.reward:.3f} ± {self.error:.3f}, {self.legal:.1%} legal{says}"

    def reaches(self, teacher: "Figures") -> bool:
        """Whether this player is as legal and as good as its teacher, as far as one can tell."""
        error = ERRORS * math.hypot(self.error, teacher.error)
        return self.legal >= teacher.legal - ILLEGAL and self.reward >= teacher.reward - error


def figures(rollouts: Sequence[Rollout], action: str = "") -> Figures:
    """The figures of a player's rollouts that did not fail; NaN without any."""
    live = [rollout for rollout in rollouts if not rollout.failed]
    steps = [step for one in live for episode in one.episodes for step in episode.actions]
    rewards = [one.final_reward for one in live]
    if not live or not steps:
        return Figures(math.nan, math.nan, math.nan, 0, action)
    legal = 1 - sum(step.unread for step in steps) / len(steps)
    error = math.sqrt(pvariance(rewards) / len(live))
    return Figures(legal, fmean(rewards), error, len(live), action)


def halfway(teacher: Figures, best: Figures) -> Figures:
    """What an imitator of a teacher's best games should reach: their luck is not to be learned."""
    reward = (teacher.reward + best.reward) / 2
    return replace(teacher, reward=reward, error=math.hypot(teacher.error, best.error) / 2)


def scripted_players(env: MultistepEnv, teacher: Agent, tasks: Tasks) -> dict[str, Figures]:
    """The figures of the teacher, a random player (where the environment lists its actions) and the
    best constant player on these tasks, by name; of the teacher alone where playing waits for
    something external, which may have its price."""
    played = {"teacher": env.run_trial(tasks, teacher).rollouts}
    if env.blocking:
        return {"teacher": figures(played["teacher"])}
    if RandomAgent.can_play(env):
        played["random"] = env.run_trial(tasks, RandomAgent(env)).rollouts
    said = Counter(step.action for rollouts in played.values() for step in _actions(rollouts))
    players = {name: figures(rollouts) for name, rollouts in played.items()}

    def always(action: str, tasks: Tasks) -> Figures:
        return figures(env.run_trial(tasks, ScriptedAgent([action])).rollouts, action)

    few = tasks[: -(-len(tasks) // 4)]
    constants = [always(action, few) for action, _ in said.most_common(MOST_CONSTANTS)]
    if constants:
        best = max(constants, key=lambda one: one.reward)
        players["constant"] = always(best.action, tasks)
    return players


def _actions(rollouts: Sequence[Rollout]) -> Iterator[Any]:
    return (s for one in rollouts for episode in one.episodes for s in episode.actions)


@contextmanager
def player_of(model: Any, tokenizer: Any, max_tokens: int, seed: int) -> Iterator[Agent]:
    """The model in memory as a player at temperature 1."""
    parts = EngineParts(model=lambda: model, tokenizer=lambda: tokenizer)
    engine = make_engine(EngineSettings(), parts, training=False)
    with closing(engine):
        yield DirectOutputAgent(engine, SamplingParams(max_tokens), seed=seed)


def side_by_side(players: Mapping[str, Figures]) -> str:
    """All players on one line."""
    games = max(one.games for one in players.values())
    shown = "; ".join(f"{name} {one}" for name, one in players.items())
    return f"reward and legal actions in {games} games: {shown}"


def problem(
    players: Mapping[str, Figures], longer: str = LONGER, *, copies: bool = False, new: bool = True
) -> str | None:
    """What is wrong with an imitator that does not reach its teacher, and what to try: to learn for
    `longer`, or another shape of a `new` model, such as one that `copies`; None if it reaches it,
    or nobody knows."""
    teacher, imitator = players.get("teacher"), players.get("imitator")
    if teacher is None or imitator is None:
        return None
    who = "the teacher"
    if BEST in players:
        teacher = halfway(teacher, players[BEST])
        who = "halfway from the teacher to these games"
    if imitator.reaches(teacher):
        return None
    if not imitator.games:
        return f"no game of the imitator could be played: give it {longer}"
    if imitator.legal < teacher.legal - ILLEGAL:
        shape = ""
        if new and not copies:
            shape = (
                "; where actions repeat words of the prompt, let it copy "
                "(warm_start.tokenizer=phrases and layers=3 heads=8 induction_heads=7 "
                "recency_heads=1 in warm_start.model)"
            )
        return (
            f"the imitator is less legal than its teacher ({imitator.legal:.1%} of its actions, "
            f"the teacher's {teacher.legal:.1%}): give it {longer}{shape}"
        )
    larger = ", a larger model (warm_start.model.layers=4)," if new else ""
    return (
        f"the imitator is legal, but earns less than what it imitates ({imitator.reward:.3f}, "
        f"{who} {teacher.reward:.3f}), so it does not use what it reads as they do: "
        f"give it {longer}{larger} or a teacher whose actions follow from what the prompts show"
    )
