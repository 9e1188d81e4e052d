"""Players of the exploration games as agents; they read the conversation.

They use the running episode, with `carry="full"` the earlier episodes of the trial, and with
`carry="summary"` their own notes, which repeat the environment's sentences.
"""

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from agentsgym.envs.exploration.beliefs import Beliefs, certain, without
from agentsgym.envs.exploration.game import Game, Heard, Question, Told
from agentsgym.envs.exploration.plan import Claim, Inform, Move, Plan
from agentsgym.envs.exploration.players import BestPlayer
from agentsgym.types import Agent, Message, PrivilegedAgent, SessionView

NOTHING = "Nothing yet."


class Rounds(Protocol):
    """The members of the environment that its players need."""

    game: Game
    plan: Plan

    def question(self, task_data: Any, episode: int) -> Question: ...

    def player(self, *, informs: bool = True) -> BestPlayer: ...


class _ExploreAgent(PrivilegedAgent):
    def __init__(self, env: Rounds) -> None:
        self._env = env

    def for_session(self, session: SessionView) -> Agent:
        """The player of one session."""
        return _ExplorePlayer(self, self._env, session)

    @abstractmethod
    def choose(self, episode: int, step: int, beliefs: Beliefs) -> Move:
        """The next move, with `step` actions of the episode used; the asked fact comes first."""


class _ExplorePlayer:
    def __init__(self, agent: _ExploreAgent, env: Rounds, session: SessionView) -> None:
        self._agent = agent
        self._env = env
        self._session = session

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """An action, or correct notes; needs no state."""
        env, session = self._env, self._session
        said = heard_in(env.game, messages)
        if session.episode_is_over:
            return write_notes(env.game, said), None
        trial = session.trial
        question = env.question(session.task_data, trial.episode)
        beliefs = env.plan.asking(after_hearing(env.plan, said), question.fact)
        episode = trial.episode if trial.carries else 0
        move = self._agent.choose(episode, len(session.actions), beliefs)
        return env.game.say(own_facts(move, question), question), None


def own_facts(move: Move, question: Question) -> Move:
    """A move with the fact's own number; players know the asked fact as number 0."""
    if isinstance(move, Claim):
        return move
    fact = question.fact if move.fact == 0 else move.fact - (move.fact <= question.fact)
    return Inform(fact, move.query)


class ExploreOptimalAgent(_ExploreAgent):
    """Plays the best moves; with `informs=False` the best ones without informing actions."""

    def __init__(self, env: Rounds, *, informs: bool = True) -> None:
        super().__init__(env)
        self._player = env.player(informs=informs)

    def choose(self, episode: int, step: int, beliefs: Beliefs) -> Move:
        """The best move."""
        return self._player.best_move(episode, step, beliefs)


class ExploreTeacher(_ExploreAgent):
    """A careless player: it informs itself in the share `looks` of its actions, about anything;
    otherwise it claims the most probable value in the share `uses` of its claims, else any value.
    Its notes are correct. A model that imitates it learns what answers mean, but has to find out
    itself when to look. `seed` seeds the draws."""

    def __init__(self, env: Rounds, *, looks: float, uses: float, seed: int = 0) -> None:
        super().__init__(env)
        self._looks = looks
        self._uses = uses
        self._rng = random.Random(f"explore-teacher-{seed}")

    def choose(self, episode: int, step: int, beliefs: Beliefs) -> Move:
        """A drawn move."""
        plan, rng = self._env.plan, self._rng
        if rng.random() < self._looks:
            return Inform(rng.randrange(plan.facts), rng.randrange(len(plan.queries)))
        if rng.random() >= self._uses:
            return Claim(rng.randrange(plan.choices))
        chances = plan.chances(beliefs[0])
        highest = max(chances) - 1e-12
        return Claim(rng.choice([value for value, p in enumerate(chances) if p >= highest]))


def heard_in(game: Game, messages: Sequence[Message]) -> list[tuple[str, Heard]]:
    """The environment's sentences about hidden facts, with what they say, in order."""
    texts = (message["content"] for message in messages if message["role"] == "user")
    return [pair for text in texts for pair in game.read(text)]


def after_hearing(plan: Plan, said: Sequence[tuple[str, Heard]]) -> Beliefs:
    """What these sentences tell, fact by fact."""
    beliefs = list(plan.start)
    for _, heard in said:
        beliefs[heard.fact] = updated(plan, beliefs[heard.fact], heard)
    return tuple(beliefs)


def updated(plan: Plan, evidence: tuple[int, ...], heard: Heard) -> tuple[int, ...]:
    """The evidence about the fact of an answer or judgment, after it."""
    if isinstance(heard, Told):
        return plan.answered(evidence, heard.query, heard.answer)
    if heard.right:
        return certain(plan.choices, heard.value)
    return without(evidence, heard.value)


def write_notes(game: Game, said: Sequence[tuple[str, Heard]]) -> str:
    """The sentences themselves."""
    return " ".join(sentence for sentence, _ in said) or NOTHING
