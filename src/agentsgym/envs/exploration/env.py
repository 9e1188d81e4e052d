"""Games in which an action of one's own must reveal what is hidden, at the cost of the episode.

A seed determines what is hidden, what each episode asks, and which answers are wrong. So rollouts
of a task differ only by their actions.
"""

import random
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import Field, model_validator

from agentsgym.envs.action_text import with_form
from agentsgym.envs.exploration.best_play import (
    Beliefs,
    BestPlayer,
    Claim,
    Inform,
    Move,
    News,
    Plan,
)
from agentsgym.envs.exploration.games import FACT_NAMES, Game, Question
from agentsgym.envs.known_game import KnownGame, episode_weights
from agentsgym.envs.settings import Carry, EnvSettings, Tasks
from agentsgym.types import Agent, Tokenizer, TrialInfo, session_seed
from agentsgym.types.settings import MOST

NO_ACTION = "No such action."
NOTHING = "Nothing yet."
_SWITCHES = "switches"
_Share = Annotated[float, Field(ge=0, le=1)]


class ExploreSettings(EnvSettings):
    """Without the number of episodes or of free shots, the second of two episodes is scored, with
    switches the one after as many free shots as there are switches. Fewer episodes have fewer free
    shots, more free shots have more episodes."""

    game: Literal["place", "switches", "rule"] = Field(
        "place", description="what is hidden, and how to find it"
    )
    max_steps_per_episode: int = Field(1, description="actions per episode; 1: looking costs it")
    episodes_per_trial: int = Field(
        2, description="episodes on the same task (switches: a free shot for each switch and 1)"
    )
    free_shots: int = Field(
        1, description="first episodes that are not scored (by default all but the last)"
    )
    carry: Carry = "full"
    choices: int = Field(
        8, ge=2, le=64, description="possible values of a fact; for switches a power of 2"
    )
    facts: int = Field(
        1, ge=1, le=len(FACT_NAMES), description="hidden facts; each episode asks for one of them"
    )
    noise: float = Field(
        0.0, ge=0, lt=1, description="probability that the answer to a look is wrong"
    )
    look_cost: float = Field(0.0, ge=0, description="cost of each informing action")
    right_reward: float = Field(1.0, description="what the paid action earns if it is right")
    wrong_reward: float = Field(0.0, description="what it earns if it is wrong")
    teacher_looks: _Share = Field(0.15, description="share of the teacher's actions that inform it")
    teacher_uses: _Share = Field(
        0.7, description="share of its other actions that use what it knows"
    )
    train_tasks: Tasks = Field(1024, description="number of training tasks")
    eval_tasks: Tasks = Field(512, description="number of evaluation tasks")

    @model_validator(mode="before")
    @classmethod
    def _complete_trial(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        episodes, free = values.get("episodes_per_trial"), values.get("free_shots")
        choices = values.get("choices", cls.model_fields["choices"].default)
        counts = [values[key] for key in ("episodes_per_trial", "free_shots") if key in values]
        if not all(map(_is_count, (*counts, choices))):
            return values  # they are refused
        shots = max(1, choices.bit_length() - 1) if values.get("game") == _SWITCHES else 1
        if free is None:
            free = shots if episodes is None else max(0, min(shots, episodes - 1))
        if episodes is None:
            episodes = max(shots, free) + 1
        return {**values, "episodes_per_trial": episodes, "free_shots": free}

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if self.game == _SWITCHES and self.choices & (self.choices - 1):
            raise ValueError(f"choices must be a power of 2 for switches, got {self.choices}")
        if self.wrong_reward >= self.right_reward:
            raise ValueError(
                f"wrong_reward must be less than right_reward ({self.right_reward}), got "
                f"{self.wrong_reward}"
            )
        return self


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


class ExploreState(TypedDict):
    """An episode: the task, its position in the trial, and what its player may know.

    `hidden` has the value of each fact, `question` what this episode asks. `known` is the evidence
    about each fact from this episode and, if the agent may know them (`carry`), from earlier ones.
    `made` lists this episode's informing actions; `steps` counts all actions, including malformed
    ones; `reply` is the last answer, `replies` all answers that `known` comes from.
    """

    seed: int
    hidden: tuple[int, ...]
    question: Question
    trial: TrialInfo
    known: Beliefs
    made: tuple[Inform, ...]
    steps: int
    reply: str
    replies: tuple[str, ...]


class ExploreEnv(KnownGame):
    """Find what is hidden, then use it: one kind of action informs and earns nothing, the other is
    paid if it is right and ends the episode.

    `task_data` is `{"seed": int}`, which draws what is hidden. The key `game` chooses the words:
    `"place"` (look for a coin, open a box), `"switches"` (test switches, press those that work),
    `"rule"` (try a machine, say what it gives). By default an episode has one action, so that
    looking costs the episode; the first of two episodes is a free shot. `info["informing"]` marks
    informing actions.
    """

    Settings = ExploreSettings
    config: ExploreSettings

    def __init__(
        self, tokenizer: Tokenizer | None = None, env_config: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(tokenizer, env_config)
        config = self.config
        self.game = Game(config.game, config.choices, config.facts)
        self.steps = config.max_steps_per_episode
        self.right, self.wrong = config.right_reward, config.wrong_reward
        self.look_cost = config.look_cost
        # A malformed action loses as much as a wrong one and need not end the episode.
        least = 0.0 - self.steps * max(0.0, self.look_cost, -self.wrong)
        self.reward_range = (least, max(0.0, self.right))
        self.plan = self._plan()
        self._players: dict[bool, Any] = {}
        self._problem = ""

    def _plan(self) -> Plan:
        """The trial as its player sees it: all episodes if they carry, else one episode."""
        config = self.config
        return Plan(
            queries=self.game.queries,
            weights=episode_weights(*self.played_as_one),
            steps=self.steps,
            facts=config.facts,
            noise=config.noise,
            look_cost=self.look_cost,
            right=self.right,
            wrong=self.wrong,
        )

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> ExploreState:
        seed, config = read_seed(task_data), self.config
        rng = random.Random(f"explore-{seed}")
        return ExploreState(
            seed=seed,
            hidden=tuple(rng.randrange(config.choices) for _ in range(config.facts)),
            question=self.question(task_data, 0),
            trial=self.trial_info(),
            known=self.plan.start,
            made=(),
            steps=0,
            reply="",
            replies=(),
        )

    def _begin_episode(
        self, session_id: str, task_data: dict[str, Any], trial: TrialInfo
    ) -> ExploreState:
        state: ExploreState = super()._begin_episode(session_id, task_data, trial)
        state["question"] = self.question(task_data, trial.episode)
        return state

    def _carry_over(self, state: ExploreState, last: ExploreState) -> None:
        state["known"], state["replies"] = last["known"], last["replies"]

    def _format_prompt(self, state: ExploreState, step: int) -> str:
        if step > 0:
            return state["reply"]
        game, place = self.game, state["trial"].round_line(self.game.words.same)
        asks = game.asks(state["question"])
        if not self.config.explain_actions:
            return " ".join(filter(None, (place, game.words.short.format(n=game.count), asks)))
        actions = "1 action" if self.steps == 1 else f"{self.steps} actions"
        rules = (place, game.hidden(), self._pay(), f"You have {actions}.", asks)
        form = "Answer with one action only."
        return with_form(" ".join(filter(None, rules)), form, self.example_action(state))

    def _pay(self) -> str:
        """What the actions are worth, in words."""
        cost = f"costs {self.look_cost:g}" if self.look_cost else "earns nothing"
        ends = " and ends the round" if self.steps > 1 else ""
        noise, words = self.config.noise, self.game.words
        lies = f" That is wrong in {noise:.0%} of the cases." if noise else ""
        return (
            f"{self.game.one_of(words.informing)} and {cost}.{lies} {words.paid} earns "
            f"{self.right:g} if right, else {self.wrong:g}{ends}."
        )

    def _step_episode(
        self, session_id: str, state: ExploreState, action: str
    ) -> tuple[ExploreState, float, bool, dict[str, Any]]:
        move = self.game.read_move(action, state["question"])
        after: ExploreState = {**state, "steps": state["steps"] + 1, "reply": NO_ACTION}
        informing, win, done = isinstance(move, Inform), False, after["steps"] >= self.steps
        stop, reward = "actions_used", min(0.0, self.wrong)  # a malformed action earns no more
        if move is not None:
            news = self._answer(state, move)
            if isinstance(move, Inform):
                after["made"] = (*state["made"], move)
                reward = 0.0 - self.look_cost
            else:
                win, done = bool(news.value), True
                reward, stop = (self.right, "right") if win else (self.wrong, "wrong")
            after["reply"] = self.game.say_answer(news, state["question"])
            after["known"] = self.plan.learned(state["known"], news)
            after["replies"] = (*state["replies"], after["reply"])
        info = {
            "informing": informing,
            "win": win,
            "stop_reason": stop,
            "anchor": self._anchor(after),
        }
        return after, reward, done, info | ({} if move else {"malformed": True})

    def _answer(self, state: ExploreState, move: Move) -> News:
        if isinstance(move, Claim):
            fact = state["question"].fact
            return News(move, fact, move.value == state["hidden"][fact])
        true = self.plan.queries[move.query][state["hidden"][move.fact]]
        repetition = state["made"].count(move)
        place = (state["seed"], state["trial"].episode, move.fact, move.query, repetition)
        value = answer_of(true, self.plan.answers, self.plan.noise, place)
        return News(move, move.fact, value)

    def _anchor(self, state: ExploreState) -> str:
        """The information state: equal for equal knowledge, in whatever order it was gained."""
        return f"{self.episode_of(state)}/{state['steps']}/{state['question']}/{state['known']}"

    def question(self, task_data: Mapping[str, Any], episode: int) -> Question:
        """What an episode of a task asks; its player knows it."""
        rng = random.Random(f"explore-{read_seed(task_data)}-{episode}")
        return Question(rng.randrange(self.config.facts), rng.randrange(self.config.choices))

    # -- the best play --------------------------------------------------------------------------

    def player(self, *, informs: bool = True) -> BestPlayer:
        """The best player of the configured trial, or the best one that never informs itself.
        Raises ValueError if the trial is too large for exact play."""
        if informs not in self._players:  # finding out takes long, also that there is none
            try:
                self._players[informs] = BestPlayer(self.plan, informs=informs)
                self._players[informs].value()
            except ValueError as error:
                self._players[informs], self._problem = None, str(error)
        player: BestPlayer | None = self._players[informs]
        if player is None:
            raise ValueError(self._problem)
        return player

    def admissible_actions(self, state: ExploreState) -> list[str]:
        """All paid actions, then all informing ones."""
        return [*self.game.claims, *self.game.informs]

    def example_action(self, state: ExploreState) -> str:
        """A paid action."""
        return self.game.words.example

    def prepare(self, kind: str = "best") -> None:
        """Find the best play, with informing actions or ("never") without."""
        self.player(informs=kind != "never")

    def best_action(self, state: ExploreState, kind: str = "best") -> str:
        """The best action, or ("never") the best one that does not inform."""
        question, episode = state["question"], self.episode_of(state)
        beliefs = self.plan.asking(state["known"], question.fact)
        move = self.player(informs=kind != "never").best_move(episode, state["steps"], beliefs)
        return self.game.say(_own_facts(move, question), question)

    def notes(self, state: ExploreState) -> str:
        """The environment's sentences."""
        return " ".join(state["replies"]) or NOTHING

    def never_informing_agent(self) -> Agent:
        """The agent that plays best without ever informing itself. Raises ConfigError if the trial
        is too large."""
        return self.agent_of("never")

    def other_references(self, task_data: Mapping[str, Any]) -> Mapping[str, float]:
        """The best player that never informs itself."""
        score = self.score_of(task_data, "never")
        return {} if score is None else {"best without exploring": score}

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        """A careless player: it informs itself in the share `teacher_looks` of its actions, about
        anything; otherwise it claims the most probable value in the share `teacher_uses` of its
        claims, else any value."""
        return self.random_agent(self._draw, f"explore-teacher-{seed}")

    def _draw(self, state: ExploreState, rng: random.Random, memory: dict[str, Any]) -> str:
        plan, question = self.plan, state["question"]
        if rng.random() < self.config.teacher_looks:
            move: Move = Inform(rng.randrange(plan.facts), rng.randrange(len(plan.queries)))
        elif rng.random() >= self.config.teacher_uses:
            move = Claim(rng.randrange(plan.choices))
        else:
            chances = plan.chances(state["known"][question.fact])
            highest = max(chances) - 1e-12
            move = Claim(rng.choice([value for value, p in enumerate(chances) if p >= highest]))
        return self.game.say(_own_facts(move, question), question)


def _own_facts(move: Move, question: Question) -> Move:
    """A move with the fact's own number; players know the asked fact as number 0."""
    if isinstance(move, Claim):
        return move
    fact = question.fact if move.fact == 0 else move.fact - (move.fact <= question.fact)
    return Inform(fact, move.query)


def read_seed(task_data: Mapping[str, Any]) -> int:
    """The seed of a task. Raises ValueError if there is none."""
    seed = task_data.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"task_data needs a 'seed' (an int), got {task_data!r}")
    return seed


def answer_of(true: int, answers: int, noise: float, place: tuple[int, int, int, int, int]) -> int:
    """The answer to a query: with probability `noise` one of the others, each equally likely.

    `place` is (seed, episode, fact, query, number of the same query's repetition in the episode).
    """
    chance = session_seed("explore", *place) / 2**63
    if chance >= noise:
        return true
    other = min(int(chance / noise * (answers - 1)), answers - 2)
    return other + (other >= true)
