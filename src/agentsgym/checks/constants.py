"""Rewards of players that always say the same: the baseline for cheap tricks."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from agentsgym.checks.context import Context
from agentsgym.checks.players import Always, Player, candidates, words_in
from agentsgym.checks.playing import Task, play_alone
from agentsgym.checks.records import Record
from agentsgym.envs.base import MultistepEnv
from agentsgym.types import GenerationRequest

MOST_CONSTANTS = 24


@dataclass(frozen=True, slots=True)
class Score:
    """A player's result: its mean reward, its wins, and the trials that raised."""

    player: str
    mean: float
    wins: int
    trials: int
    errors: tuple[str, ...] = ()


def score(context: Context, name: str, player: Player, tasks: Sequence[Task]) -> Score:
    """Play each task once with a player."""
    records = play_alone(context.make(None), tasks, player)
    return Score(
        name,
        sum(record.reward for record in records) / len(records),
        sum(won(context.env, record) for record in records),
        len(records),
        tuple(record.error for record in records if record.error),
    )


def won(env: MultistepEnv, record: Record) -> bool:
    """Whether a trial was won: the environment reports it, or the reward is the maximum."""
    if record.win is not None:
        return record.win
    high = env.reward_range[1]
    return 0 < high < float("inf") and record.reward >= 0.99 * high


@dataclass(frozen=True, slots=True)
class Yardstick:
    """The tasks on which cheap tricks are tried, their vocabulary, and the scores of some constant
    actions."""

    tasks: tuple[Task, ...]
    vocabulary: tuple[str, ...]
    scores: tuple[Score, ...]

    @property
    def best(self) -> Score:
        """The constant action with the highest mean reward."""
        return max(self.scores, key=lambda each: each.mean)

    @property
    def most_wins(self) -> int:
        """The most tasks that any constant action wins."""
        return max(each.wins for each in self.scores)


def yardstick(context: Context) -> Yardstick:
    """Measure constant actions, once per check."""
    if context.yardstick is None:
        context.yardstick = _measured(context)
    found: Yardstick = context.yardstick
    return found


def _measured(context: Context) -> Yardstick:
    affordable = int(context.share / max(context.episode_seconds, 1e-9))
    tasks = context.tasks(8)
    vocabulary = _vocabulary(context, tasks)
    count = max(4, min(MOST_CONSTANTS, affordable // len(tasks)))
    constants = _chosen(vocabulary, count, context.seed)
    scores = tuple(score(context, text, Always(text), tasks) for text in constants)
    return Yardstick(tuple(tasks), vocabulary, scores)


def _chosen(vocabulary: Sequence[str], count: int, seed: int) -> list[str]:
    """Some of the vocabulary, always with its first and last entry: an environment that reads one
    action out of a list probably takes the first or the last."""
    if len(vocabulary) <= count:
        return list(vocabulary)
    middle = random.Random(seed).sample(vocabulary[1:-1], count - 2)
    return [vocabulary[0], *middle, vocabulary[-1]]


def _vocabulary(context: Context, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Every possible action or answer in these tasks, including the words of the tasks."""
    env = context.make(None)
    listener = _Listener()
    for number, task in enumerate(tasks):
        play_alone(env, [task], listener, first=number)
    words = [word for task in tasks for word in words_in(task)]
    return tuple(dict.fromkeys([*words, *listener.heard]))


class _Listener:
    """Notes the candidates at each first step and gives an empty answer."""

    def __init__(self) -> None:
        self.heard: dict[str, None] = {}

    def __call__(self, env: MultistepEnv, request: GenerationRequest, number: int) -> str:
        if len(request.messages) <= 2:
            self.heard |= dict.fromkeys(candidates(env, request)[:400])
        return ""
