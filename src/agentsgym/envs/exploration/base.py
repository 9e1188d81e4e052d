"""What the exploration games have in common: episodes, rewards, the best play, the teacher.

A task determines what is hidden, what each episode asks, and which answers are wrong. So rollouts
of a task differ only by their actions.
"""

import random
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from agentsgym.envs.action_text import names_any, read_action
from agentsgym.envs.base import UNINFORMED
from agentsgym.envs.dataset import read_seed
from agentsgym.envs.exploration.best_play import (
    Beliefs,
    BestPlayer,
    Claim,
    Inform,
    Move,
    News,
    Plan,
)
from agentsgym.envs.known_game import GameState, KnownGame
from agentsgym.envs.settings import EnvSettings, Tasks
from agentsgym.types import Agent, TrialInfo, session_seed

NO_ACTION = "No such action."
NOTHING = "Nothing yet."
_Share = Annotated[float, Field(ge=0, le=1)]
Noise = Annotated[float, Field(ge=0, lt=1)]


class ExplorationSettings(EnvSettings):
    """What all exploration games have: the careless teacher, and the sizes of the datasets."""

    teacher_looks: _Share = Field(0.15, description="share of the teacher's actions that inform it")
    teacher_uses: _Share = Field(
        0.7, description="share of its other actions that use what it knows"
    )
    teacher_looks_again: _Share | None = Field(
        None,
        description="share of informing actions once the teacher knows what is right; none: "
        "teacher_looks",
    )
    train_tasks: Tasks = Field(1024, description="number of training tasks")
    eval_tasks: Tasks = Field(512, description="number of evaluation tasks")


@dataclass(frozen=True, slots=True)
class Question:
    """What an episode asks: a fact, and a number that the rule's game gives with it."""

    fact: int = 0
    given: int = 0


class Wording:
    """A game in words: what its moves are called, and what is answered.

    `claims` are the paid actions in the order of the values that they claim (see `first_claim`),
    `informs` the informing ones.
    """

    def __init__(self, claims: Iterable[str], informs: Mapping[str, Inform]) -> None:
        self.claims, self.informs = tuple(claims), informs
        self._names = {move: text for text, move in informs.items()}
        self._by_key = {self.key(text): text for text in (*self.claims, *informs)}

    @abstractmethod
    def key(self, text: str) -> tuple[str, ...]:
        """The words by which an action is known."""

    @abstractmethod
    def say_answer(self, answer: News, question: Question) -> str:
        """The answer to a query, or whether a claim is right."""

    def first_claim(self, question: Question) -> int:
        """The number of the paid action that claims value 0. After the last one comes number 0."""
        return 0

    def say(self, move: Move, question: Question) -> str:
        """A move as an action."""
        if isinstance(move, Inform):
            return self._names[move]
        return self.claims[(move.value + self.first_claim(question)) % len(self.claims)]

    def read_move(self, action: str, question: Question) -> Move | None:
        """The move in an agent's text (see `read_action`); None if it has none, or several."""
        text = read_action(
            action,
            lambda part: self._by_key.get(self.key(part)),
            lambda part: names_any(part, self._by_key.values()),
        )
        if text is None or text in self.informs:
            return None if text is None else self.informs[text]
        number = self.claims.index(text)
        return Claim((number - self.first_claim(question)) % len(self.claims))


@dataclass(frozen=True, slots=True)
class Case:
    """A task: the decision process that its player is in, and its words."""

    plan: Plan
    wording: Wording


class ExploreState(GameState):
    """An episode: the task, and what its player may know.

    `hidden` has the value of each fact, `question` what this episode asks. `known` is the evidence
    about each fact from this episode and, if the agent may know them (`carry`), from earlier ones.
    `made` lists this episode's informing actions, `replies` all answers that `known` comes from.
    """

    task: Mapping[str, Any]
    hidden: tuple[int, ...]
    question: Question
    known: Beliefs
    made: tuple[Inform, ...]
    replies: tuple[str, ...]


class ExplorationGame(KnownGame):
    """A game in which one kind of action informs and earns nothing, and the other is paid if it is
    right and ends the episode. `info["informing"]` marks informing actions.

    A subclass says what the `case` of a task is, what an episode asks for (`question`), and writes
    the prompts.
    """

    config: ExplorationSettings
    form = "Answer with one action only."

    @abstractmethod
    def case(self, task_data: Mapping[str, Any]) -> Case:
        """The plan and the wording of a task. Raises ValueError for a bad one."""

    @abstractmethod
    def question(self, task_data: Mapping[str, Any], episode: int) -> Question:
        """What an episode of a task asks; its player knows it."""

    # -- an episode -----------------------------------------------------------------------------

    def start(self, task_data: Mapping[str, Any]) -> dict[str, Any]:
        plan = self.case(task_data).plan
        rng = random.Random(f"explore-{read_seed(task_data)}")
        return {
            "task": task_data,
            "hidden": tuple(rng.randrange(plan.choices) for _ in range(plan.facts)),
            "question": self.question(task_data, 0),
            "known": plan.start,
            "made": (),
            "replies": (),
        }

    def _begin_episode(
        self, session_id: str, task_data: dict[str, Any], trial: TrialInfo
    ) -> ExploreState:
        state: ExploreState = super()._begin_episode(session_id, task_data, trial)
        state["question"] = self.question(task_data, trial.episode)
        return state

    def _carry_over(self, state: ExploreState, last: ExploreState) -> None:
        state["known"], state["replies"] = last["known"], last["replies"]

    def _step_episode(
        self, session_id: str, state: ExploreState, action: str
    ) -> tuple[ExploreState, float, bool, dict[str, Any]]:
        case = self.case(state["task"])
        plan = case.plan
        move = case.wording.read_move(action, state["question"])
        after: ExploreState = {**state, "steps": state["steps"] + 1, "reply": NO_ACTION}
        informing, win = isinstance(move, Inform) and plan.tells(move), False
        done = after["steps"] >= plan.actions(self.episode_of(state))
        stop, reward = "actions_used", min(0.0, plan.wrong)  # a malformed action earns no more
        if move is not None:
            news = answer(plan, state, move)
            if isinstance(move, Inform):
                after["made"] = (*state["made"], move)
                reward = 0.0 - plan.look_cost
            else:
                win, done = bool(news.value), True
                reward, stop = (plan.right, "right") if win else (plan.wrong, "wrong")
            after["reply"] = case.wording.say_answer(news, state["question"])
            after["known"] = plan.learned(state["known"], news)
            after["replies"] = (*state["replies"], after["reply"])
        info = {
            "informing": informing,
            "win": win,
            "stop_reason": stop,
            "anchor": self.anchor(after, f"{after['question']}/{after['known']}"),
        }
        return after, reward, done, info | ({} if move else {"malformed": True})

    # -- the best play --------------------------------------------------------------------------

    def player_of(self, task_data: Mapping[str, Any], *, informs: bool = True) -> BestPlayer:
        """The best player of a task's trial, or the best one that never informs itself. Raises
        ValueError if the trial is too large for exact play."""
        player = _solved(self.case(task_data).plan, informs)
        if isinstance(player, str):
            raise ValueError(player)
        return player

    def prepare(self, kind: str = "best", task_data: Mapping[str, Any] | None = None) -> None:
        task = next(iter(self._tasks(True))) if task_data is None else task_data
        self.player_of(task, informs=kind != "never")

    def admissible_actions(self, state: ExploreState) -> list[str]:
        wording = self.case(state["task"]).wording
        return [*wording.claims, *wording.informs]

    def best_action(self, state: ExploreState, kind: str = "best") -> str:
        case, question = self.case(state["task"]), state["question"]
        beliefs = case.plan.asking(state["known"], question.fact)
        player = self.player_of(state["task"], informs=kind != "never")
        move = player.best_move(self.episode_of(state), state["steps"], beliefs)
        return case.wording.say(_own_facts(move, question), question)

    def notes(self, state: ExploreState) -> str:
        return " ".join(state["replies"]) or NOTHING

    def never_informing_agent(self) -> Agent:
        """The agent that plays best without ever informing itself. Raises ConfigError if the trial
        is too large."""
        return self.agent_of("never")

    def other_references(self, task_data: Mapping[str, Any]) -> Mapping[str, float]:
        score = self.score_of(task_data, "never")
        return {} if score is None else {UNINFORMED: score}

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        """A careless player: it informs itself in the share `teacher_looks` of its actions (in
        `teacher_looks_again` once it knows what is right), about anything (if some of that tells
        nothing, in the share `teacher_uses` about something that does); otherwise it claims the
        most probable value in the share `teacher_uses` of its claims, else any value."""
        return self.random_agent(self._draw, f"explore-teacher-{seed}")

    def _draw(self, state: ExploreState, rng: random.Random, memory: dict[str, Any]) -> str:
        case, question = self.case(state["task"]), state["question"]
        plan, config = case.plan, self.config
        chances = plan.chances(state["known"][question.fact])
        looks, again = config.teacher_looks, config.teacher_looks_again
        if again is not None and max(chances) > 1 - 1e-12:
            looks = again
        if rng.random() < looks:
            queries = range(len(plan.queries))
            moves = [Inform(fact, query) for fact in range(plan.facts) for query in queries]
            telling = [move for move in moves if plan.tells(move)]
            careful = len(telling) < len(moves) and rng.random() < config.teacher_uses
            move: Move = rng.choice(telling if careful else moves)
        elif rng.random() >= config.teacher_uses:
            move = Claim(rng.randrange(plan.choices))
        else:
            highest = max(chances) - 1e-12
            move = Claim(rng.choice([value for value, p in enumerate(chances) if p >= highest]))
        return case.wording.say(_own_facts(move, question), question)


@lru_cache(maxsize=1000)
def _solved(plan: Plan, informs: bool) -> BestPlayer | str:
    """The best player, its play found; or why there is none, as finding that out takes long."""
    try:
        player = BestPlayer(plan, informs=informs)
        player.value()
    except ValueError as error:
        return str(error)
    return player


def _own_facts(move: Move, question: Question) -> Move:
    """A move with the fact's own number; players know the asked fact as number 0."""
    if isinstance(move, Claim):
        return move
    fact = question.fact if move.fact == 0 else move.fact - (move.fact <= question.fact)
    return Inform(fact, move.query)


def answer(plan: Plan, state: ExploreState, move: Move) -> News:
    """The environment's answer to a move. With probability `noise` that to a query is one of the
    others, each equally likely; it depends on the task, the episode and the number of the query's
    repetition in it."""
    if isinstance(move, Claim):
        fact = state["question"].fact
        return News(move, fact, move.value == state["hidden"][fact])
    true = plan.queries[move.query][state["hidden"][move.fact]]
    repetition, seed = state["made"].count(move), read_seed(state["task"])
    place = (seed, state["trial"].episode, move.fact, move.query, repetition)
    chance, noise = session_seed("explore", *place) / 2**63, plan.noise
    if chance < noise:  # one of the other answers
        other = min(int(chance / noise * (plan.answers - 1)), plan.answers - 2)
        true = other + (other >= true)
    return News(move, move.fact, true)
