"""Games in which an action of one's own must reveal what is hidden, at the cost of the episode."""

from collections.abc import Mapping
from typing import Any, TypedDict

from agentsgym.envs.action_form import with_form
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import task_dataset
from agentsgym.envs.exploration.agents import (
    ExploreOptimalAgent,
    ExploreTeacher,
    own_facts,
    updated,
)
from agentsgym.envs.exploration.beliefs import Beliefs
from agentsgym.envs.exploration.game import Game, Heard, Judged, Question, Told
from agentsgym.envs.exploration.languages import GAMES
from agentsgym.envs.exploration.plan import Claim, Inform, Move, Plan, trial_weights
from agentsgym.envs.exploration.players import BestPlayer
from agentsgym.envs.exploration.settings import ExploreSettings
from agentsgym.envs.exploration.tasks import (
    FIRST_EVAL_SEED,
    answer_of,
    hidden_values,
    question_of,
    read_seed,
)
from agentsgym.types import Agent, Tokenizer, TrialInfo
from agentsgym.types.errors import ConfigError

NO_ACTION = "No such action."
REFLECT = "Note what you know."


class State(TypedDict):
    """An episode: the task, its position in the trial, and what its player may know.

    `hidden` has the value of each fact, `question` what this episode asks. `known` is the evidence
    about each fact from this episode and, if the agent may know them (`carry`), from earlier ones.
    `made` lists this episode's informing actions; `steps` counts all actions, including malformed
    ones; `said` is the last answer.
    """

    seed: int
    hidden: tuple[int, ...]
    question: Question
    trial: TrialInfo
    known: Beliefs
    made: tuple[Inform, ...]
    steps: int
    said: str


class ExploreEnv(MultistepEnv):
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
        self.game: Game = GAMES[config.game](config.choices, config.facts)
        self.steps = config.max_steps_per_episode
        self.carries: bool = config.carry != "none"
        self.right, self.wrong = config.right_reward, config.wrong_reward
        self.look_cost = config.look_cost
        # A malformed action loses as much as a wrong one and need not end the episode.
        least = 0.0 - self.steps * max(0.0, self.look_cost, -self.wrong)
        self.reward_range = (least, max(0.0, self.right))
        self.plan = self._plan()
        self._players: dict[bool, BestPlayer | ValueError] = {}

    def _plan(self) -> Plan:
        """The trial as its player sees it: all episodes if they carry, else one episode."""
        config = self.config
        trial = (config.episodes_per_trial, config.free_shots) if self.carries else ()
        return Plan(
            queries=self.game.queries,
            weights=trial_weights(*trial),
            steps=self.steps,
            facts=config.facts,
            noise=config.noise,
            look_cost=self.look_cost,
            right=self.right,
            wrong=self.wrong,
        )

    # -- an episode -----------------------------------------------------------------------------

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> State:
        seed, config = read_seed(task_data), self.config
        return State(
            seed=seed,
            hidden=hidden_values(seed, config.choices, config.facts),
            question=self.question(task_data, 0),
            trial=self.trial_info(),
            known=self.plan.start,
            made=(),
            steps=0,
            said="",
        )

    def _begin_episode(self, session_id: str, task_data: dict[str, Any], trial: TrialInfo) -> State:
        state = self._initialize_episode(session_id, task_data)
        state["trial"] = trial.without_state()
        state["question"] = self.question(task_data, trial.episode)
        last: State | None = trial.last_state
        if last is not None and self.carries:
            state["known"] = last["known"]
        return state

    def _format_prompt(self, state: State, step: int) -> str:
        if step > 0:
            return state["said"]
        game, place = self.game, state["trial"].round_line(self.game.same)
        asks = game.asks(state["question"])
        if not self.config.explain_actions:
            return " ".join(filter(None, (place, game.short(), asks)))
        actions = "1 action" if self.steps == 1 else f"{self.steps} actions"
        rules = (place, game.hidden(), self._pay(), f"You have {actions}.", asks)
        form = "Answer with one action only."
        return with_form(" ".join(filter(None, rules)), form, self.example_action(state))

    def _pay(self) -> str:
        """What the actions are worth, in words."""
        cost = f"costs {self.look_cost:g}" if self.look_cost else "earns nothing"
        ends = " and ends the round" if self.steps > 1 else ""
        noise = self.config.noise
        lies = f" That is wrong in {noise:.0%} of the cases." if noise else ""
        return (
            f"{self.game.informing()} and {cost}.{lies} {self.game.paid()} earns {self.right:g} "
            f"if right, else {self.wrong:g}{ends}."
        )

    def _format_result(self, state: State, reward: float) -> str:
        return state["said"]

    def _format_reflection(self, state: State, reward: float) -> str:
        return f"{state['said']} {REFLECT}"

    def _format_memory(self, reflection: str) -> str:
        return f"Notes: {reflection}"

    def _step_episode(
        self, session_id: str, state: State, action: str
    ) -> tuple[State, float, bool, dict[str, Any]]:
        move = self.game.read_move(action, state["question"])
        if move is None:
            return self._malformed(state)
        after: State = {**state, "steps": state["steps"] + 1}
        informing, win = isinstance(move, Inform), False
        heard = self._outcome(state, move)
        if isinstance(heard, Told):
            after["made"] = (*state["made"], Inform(heard.fact, heard.query))
            after["said"] = self.game.say_told(heard)
            reward = 0.0 - self.look_cost
        else:
            win = heard.right
            after["said"] = self.game.say_judged(heard, state["question"])
            reward = self.right if win else self.wrong
        after["known"] = self._learned(state["known"], heard)
        done = not informing or after["steps"] >= self.steps
        stop = "actions_used" if informing else "right" if win else "wrong"
        return after, reward, done, self._info(after, stop, informing=informing, win=win)

    def _malformed(self, state: State) -> tuple[State, float, bool, dict[str, Any]]:
        """A lost action; it earns no more than a wrong one."""
        after: State = {**state, "steps": state["steps"] + 1, "said": NO_ACTION}
        info = self._info(after, "actions_used", informing=False, win=False)
        done = after["steps"] >= self.steps
        return after, min(0.0, self.wrong), done, {**info, "malformed": True}

    def _info(self, after: State, stop: str, *, informing: bool, win: bool) -> dict[str, Any]:
        return {
            "informing": informing,
            "win": win,
            "stop_reason": stop,
            "anchor": self._anchor(after),
        }

    def _outcome(self, state: State, move: Move) -> Heard:
        """The answer to a query, or the judgment of a claim."""
        if isinstance(move, Claim):
            asked = state["question"].fact
            return Judged(asked, move.value, move.value == state["hidden"][asked])
        true = self.plan.queries[move.query][state["hidden"][move.fact]]
        repetition = state["made"].count(move)
        place = (state["seed"], state["trial"].episode, move.fact, move.query, repetition)
        answer = answer_of(true, self.plan.answers, self.plan.noise, place)
        return Told(move.fact, move.query, answer)

    def _learned(self, known: Beliefs, heard: Heard) -> Beliefs:
        evidence = updated(self.plan, known[heard.fact], heard)
        return (*known[: heard.fact], evidence, *known[heard.fact + 1 :])

    def _anchor(self, state: State) -> str:
        """The information state: equal for equal knowledge, in whatever order it was gained."""
        episode = state["trial"].episode if self.carries else 0
        return f"{episode}/{state['steps']}/{state['question']}/{state['known']}"

    # -- tasks ----------------------------------------------------------------------------------

    def question(self, task_data: Mapping[str, Any], episode: int) -> Question:
        """What an episode of a task asks; its player knows it."""
        config = self.config
        return question_of(read_seed(task_data), episode, config.choices, config.facts)

    def get_train_dataset(self) -> Any:
        """Tasks with the seeds 0, 1, …"""
        return task_dataset(self, [{"seed": k} for k in range(self.config.train_tasks)])

    def get_eval_dataset(self) -> Any:
        """Tasks with the seeds 1,000,000, 1,000,001, …"""
        first = max(FIRST_EVAL_SEED, self.config.train_tasks)
        return task_dataset(self, [{"seed": first + k} for k in range(self.config.eval_tasks)])

    def check_task(self, task_data: Mapping[str, Any]) -> str | None:
        """A task has a `seed`."""
        try:
            read_seed(task_data)
        except ValueError as error:
            return str(error)
        return None

    # -- the best play --------------------------------------------------------------------------

    def player(self, *, informs: bool = True) -> BestPlayer:
        """The best player of the configured trial, or the best one that never informs itself.
        Raises ValueError if the trial is too large for exact play."""
        if informs not in self._players:
            self._players[informs] = self._solved(informs=informs)
        found = self._players[informs]
        if isinstance(found, ValueError):
            raise ValueError(str(found))
        return found

    def _solved(self, *, informs: bool) -> BestPlayer | ValueError:
        """The best player, or why there is none; finding out takes long."""
        try:
            player = BestPlayer(self.plan, informs=informs)
            player.value()
        except ValueError as error:
            return error
        return player

    def admissible_actions(self, state: State) -> list[str]:
        """All paid actions, then all informing ones."""
        return [*self.game.claims, *self.game.informs]

    def example_action(self, state: State) -> str:
        """A paid action."""
        return self.game.example

    def optimal_agent(self) -> Agent:
        """The agent that plays best. Raises ConfigError if the trial is too large."""
        return self._optimal(informs=True)

    def never_informing_agent(self) -> Agent:
        """The agent that plays best without ever informing itself. Raises ConfigError if the trial
        is too large."""
        return self._optimal(informs=False)

    def _optimal(self, *, informs: bool) -> Agent:
        try:
            return ExploreOptimalAgent(self, informs=informs)
        except ValueError as error:
            raise ConfigError(f"{self.name}: no player is known to be optimal: {error}") from error

    def teacher_agent(self, *, seed: int = 0) -> Agent:
        """The careless player (see the keys `teacher_looks` and `teacher_uses`)."""
        looks, uses = self.config.teacher_looks, self.config.teacher_uses
        return ExploreTeacher(self, looks=looks, uses=uses, seed=seed)

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """The best player's reward on this task with its actual outcomes; None if the trial is too
        large for exact play. So the best player's regret is 0 on every task."""
        return self._score(task_data, informs=True)

    def never_informing_score(self, task_data: Mapping[str, Any]) -> float | None:
        """The same for the best player that never informs itself."""
        return self._score(task_data, informs=False)

    def other_references(self, task_data: Mapping[str, Any]) -> Mapping[str, float]:
        """The best player that never informs itself."""
        score = self.never_informing_score(task_data)
        return {} if score is None else {"best without exploring": score}

    def _score(self, task_data: Mapping[str, Any], *, informs: bool) -> float | None:
        seed = read_seed(task_data)
        try:
            rewards = self.reference_play({"seed": seed}, informs=informs)
        except ValueError:
            return None
        scored = rewards[self.config.free_shots :]
        return sum(scored) / len(scored)

    def reference_play(self, task_data: Mapping[str, Any], *, informs: bool = True) -> list[float]:
        """The best player's reward in each episode of a trial on this task. Raises ValueError if
        the trial is too large for exact play."""
        player, rewards, last = self.player(informs=informs), [], None
        for number in range(self.config.episodes_per_trial):
            trial = TrialInfo(episode=number, last_state=last)
            state, total, done = self._begin_episode("", dict(task_data), trial), 0.0, False
            while not done:
                asked = state["question"].fact
                beliefs = self.plan.asking(state["known"], asked)
                move = player.best_move(number if self.carries else 0, state["steps"], beliefs)
                text = self.game.say(own_facts(move, state["question"]), state["question"])
                state, reward, done, _ = self._step_episode("", state, text)
                total += reward
            rewards.append(total)
            last = state
        return rewards
