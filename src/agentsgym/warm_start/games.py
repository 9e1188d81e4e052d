"""The games of a warm start: those that are played for it, and recorded ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from agentsgym.agents.scripted import RandomAgent
from agentsgym.credit.table import differ
from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.envs.dataset import check_row
from agentsgym.rollout import play
from agentsgym.rollout.failures import last_line
from agentsgym.tokens import Codec, Tree
from agentsgym.types import Agent, Answer, Rollout, RolloutRequest, Step, session_seed
from agentsgym.warm_start.lessons import Example, examples_of, normalize
from agentsgym.warm_start.settings import WarmStartSettings

_ROUND = 64  # tasks played before the next are drawn
_MOST_DRAWS = 4
_MOST_ROUNDS_WITHOUT = 20  # rounds in which no game passes the filter


class GameStream:
    """Batches of new games, which `agent` plays on randomly drawn tasks when they are needed, the
    best of `best_of` on each; of a random player half of the games begin in the middle. Each pass
    over the tasks has a new order. They are played as text; only those that are imitated become
    tokens of `codec`, at first that of the environment."""

    def __init__(
        self,
        env: MultistepEnv,
        agent: Agent,
        tasks: Sequence[Mapping[str, Any]],
        settings: WarmStartSettings,
        seed: int,
    ) -> None:
        self._env, self.codec = env.with_tokenizer(None), env.codec
        self._env.trusts_tasks = True  # as `run_trial` does, for the caller's own tasks
        self._agent = agent
        self._tasks = tasks
        self._settings = settings
        self._rng = np.random.default_rng(seed)
        self._order: list[int] = []
        self._batches: Iterator[list[Example]] = iter(())

    def best(self, count: int) -> list[Rollout]:
        """`count` games, each the best of `best_of` on its task. The best of games that earn alike
        shows nothing: these fill up what is missing after `_MOST_DRAWS` times as many tasks."""
        return [best for group in self._groups(count) for best in best_of_groups(group)]

    def _groups(self, count: int) -> list[list[Rollout]]:
        size = self._settings.best_of
        shows: list[list[Rollout]] = []
        alike: list[list[Rollout]] = []
        for _ in range(_MOST_DRAWS if size > 1 else 1):
            for group in groups_of(self.play(count, size)):
                (shows if differ(one.final_reward for one in group) else alike).append(group)
            if len(shows) >= count:
                break
        return [*shows, *alike][:count]

    def imitated(self, count: int) -> list[Rollout]:
        """Games to imitate: the best ones, half of them from the middle if their player is random.

        The best whole game is that of a player who knows what the prompt does not say: a lucky
        guess beats a game that pays for a question. What a question tells is only of use after it,
        so these games are played on from an action of any number, and are learned from there on.
        """
        if self._settings.best_of == 1 or not isinstance(self._agent, RandomAgent):
            return self.best(count)
        groups, size = self._groups(-(-count // 2)), self._settings.best_of
        requests = [
            RolloutRequest.branch(game, nodes, index, int(self._rng.integers(1 << 62)))
            for group in groups
            for game, nodes in self._prefix(group)
            for index in range(size)
        ]
        if not requests:  # games of one action have no middle
            groups += self._groups(count - len(groups))
        played = play(requests, self._agent, EnvPool(envs=[self._env]))
        for start in range(0, len(played), size):
            live = [one for one in played[start : start + size] if not one.failed]
            if differ(one.final_reward for one in live):
                groups.append(live)
        return [best for group in groups for best in best_of_groups(group)]

    def _prefix(self, group: list[Rollout]) -> list[tuple[Rollout, int]]:
        """One of a group's games and the number of its answer from which it is played on, if one
        is long enough: first a number is drawn, then a game, since the long ones are few."""
        longest = max(len(game.steps) for game in group)
        if longest < 2:
            return []
        nodes = int(self._rng.integers(1, longest))
        long = [game for game in group if len(game.steps) > nodes]
        return [(long[int(self._rng.integers(len(long)))], nodes)]

    def play(self, count: int, rollouts: int = 1) -> tuple[Rollout, ...]:
        """`rollouts` games on each of `count` tasks. Raises RuntimeError if one fails."""
        while len(self._order) < count:
            self._order += self._rng.permutation(len(self._tasks)).tolist()
        chosen, self._order = self._order[:count], self._order[count:]
        tasks = [self._tasks[i] for i in chosen]
        played = self._env.run_trial(tasks, self._agent, rollouts).rollouts
        for rollout in played:
            if rollout.failed:
                raise RuntimeError(f"a game of the warm start failed:\n{rollout.error}")
        return played

    def batch(self, step: int) -> list[Example]:
        """The next batch; `step` is the number of its update."""
        batch = next(self._batches, None)
        if batch is None:
            self._batches = self._round(step)
            batch = next(self._batches)
        return batch

    def _round(self, step: int) -> Iterator[list[Example]]:
        """A round of games, `epochs` times, in batches that are drawn without regard to what is in
        them: clipping weighs batches, and one of like games would tie its weight to what was
        played."""
        settings, codec = self._settings, self.codec
        assert settings.steps is not None and settings.batch_size is not None
        assert codec is not None and settings.epochs is not None
        weight, size = settings.final_weight_at(step, settings.steps), settings.batch_size
        examples = normalize(
            [
                example
                for game in self.imitated(settings.games_per_round)
                for whole in [rerendered(replace(game, replayed=0), codec)]
                for example in examples_of(whole, codec, weight, game.replayed)
            ],
            size,
        )
        for _ in range(settings.epochs):
            order = self._rng.permutation(len(examples)).tolist()
            for start in range(0, len(order), size):
                yield [examples[i] for i in order[start : start + size]]


def play_rounds(
    rows: Sequence[Mapping[str, Any]],
    agent: Agent,
    envs: EnvPool,
    settings: WarmStartSettings,
    *,
    max_rollout_tokens: int | None,
    done: Sequence[int] = (),
) -> Iterator[list[Rollout]]:
    """Rounds of games of `agent`, `games` in all: the best of `best_of` on each drawn row.

    `done` has the number of games of each round that was played before. Raises RuntimeError if all
    games of a round fail, or if none has enough reward for too long.
    """
    count, empty = sum(done), 0
    order = _endless(len(rows), settings.seed)
    list(islice(order, _ROUND * len(done)))  # drawn before
    number = len(done)
    while count < settings.games:
        drawn = [rows[index] for index in islice(order, _ROUND)]
        requests = [
            RolloutRequest.of(
                check_row(row, group),
                group,
                index,
                session_seed(settings.seed, "warm start", number, group, index),
                max_rollout_tokens=max_rollout_tokens,
            )
            for group, row in enumerate(drawn[: settings.games - count])
            for index in range(settings.best_of)
        ]
        played = play(requests, agent, envs)
        live = [rollout for rollout in played if not rollout.failed]
        if not live:
            last = last_line(str(played[0].error))
            raise RuntimeError(f"every game of the warm start failed; the first: {last}")
        least = settings.min_reward
        best = best_of_groups(live)
        kept = [game for game in best if least is None or game.final_reward >= least]
        count, number, empty = count + len(kept), number + 1, 0 if kept else empty + 1
        yield kept
        if empty >= _MOST_ROUNDS_WITHOUT:
            raise RuntimeError(
                f"warm_start.min_reward: none of the last {empty * len(requests)} games of "
                f"the {settings.source} player had a reward of {least:g}"
            )


def _endless(size: int, seed: int) -> Iterator[int]:
    """The numbers below `size` again and again, each time in a new order."""
    rng = np.random.default_rng(seed)
    while True:
        yield from map(int, rng.permutation(size))


def groups_of(rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    """The rollouts of each group, in the order of its first one."""
    groups: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    return list(groups.values())


def best_of_groups(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The rollout with the highest reward of each group, the first of equal ones."""
    return [max(group, key=lambda one: one.final_reward) for group in groups_of(rollouts)]


def rerendered(rollout: Rollout, codec: Codec, max_tokens: int | None = None) -> Rollout:
    """The rollout with the tokens that a text agent with these words would have got.

    Its own token ids are not read, so the run may be another model's. Raises ValueError if the
    conversation is not one of a game, or has a row of more than `max_tokens`.
    """
    tree = Tree(codec)
    written = iter([_rewritten(tree, step, n) for n, step in enumerate(rollout.steps)])
    episodes = tuple(
        replace(episode, steps=tuple(islice(written, len(episode.steps))), unanswered=None)
        for episode in rollout.episodes
    )
    again = replace(rollout, episodes=episodes, **tree.tape())
    if any(max_tokens is not None and len(row.token_ids) > max_tokens for row in again.rows):
        raise ValueError("a row is longer than max_rollout_tokens")
    return again


def _rewritten(tree: Tree, step: Step, number: int) -> Step:
    """The step as a text agent would have played it after those of the tree."""
    if step.parent not in (None, number - 1):
        raise ValueError("the conversation branches, which no game does")
    roles = [message.role for message in step.messages]
    if step.answer is None or not roles or "assistant" in roles:
        raise ValueError("the conversation has another number of actions than the game")
    if step.parent is None:
        tree.restart(step.begins)
    tree.observe(step.messages)
    tree.act(Answer(step.answer))
    return replace(step, **tree.taken().recorded | {"tools": step.tools})
