"""The check of what `admissible_actions` promises: all that it lists is legal, and none is missing.

Players play, and each of their actions is compared with the list of its state. Then states that
they saw are reached again, by the same actions, and others are tried there: listed ones, those that
are listed in other states, changed ones, and what the conversation offers.
"""

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentsgym.agents.scripted import scripted_agent
from agentsgym.checks.context import Context, Failed, Passed
from agentsgym.checks.playing import harvest, play_in_turn, random_player
from agentsgym.envs.action_text import words
from agentsgym.envs.base import MultistepEnv, overrides
from agentsgym.rollout.drive import plays_episodes
from agentsgym.rollout.session import SessionError, checked_actions
from agentsgym.rollout.stepping import SteppedTrial
from agentsgym.types.foreign import truth
from agentsgym.types.names import ConfigError
from agentsgym.types.text import named_error, short_repr

LEAST_STATES = 3
LEAST_ACTIONS, PER_STATE = 2, 8
"""How many actions of each kind are tried in a state: without time left, and with."""
MOST_COMPARED = 64
"""Most listed actions that are tried to find one that is answered as an unlisted one is."""
NONSENSE = "nonsense 0"
"""What no environment lists. Of one that accepts it, nothing says which actions it accepts."""
_NUMBER = re.compile(r"\d+")


class Place(NamedTuple):
    """A state in an episode of a task: the actions that lead there, and the list."""

    task: Mapping[str, Any]
    before: tuple[str, ...]
    listed: tuple[str, ...]

    def __str__(self) -> str:
        return f"after {short_repr(list(self.before))}" if self.before else "at the start"


class Reaction(NamedTuple):
    """How an environment answers an action: `refusal` says why it is not legal, "" if it is."""

    refusal: str
    said: tuple[str, ...]
    reward: float
    over: bool
    win: bool | None


def admissible(context: Context) -> Passed:
    """Each listed action is legal; any other is refused, or answered as a listed one is."""
    if not overrides(context.env, "admissible_actions"):
        return Passed("the environment lists no actions")
    watch = _Watch(_of_one_episode(context))
    for task in context.tasks(4, most=8):
        _play(watch, task, context.seed)
    if watch.wrong:
        raise Failed(watch.wrong)
    if plays_episodes(watch.env):
        return Passed(f"{watch.judged} actions of players are as listed")
    return _tried(watch, context)


def _of_one_episode(context: Context) -> MultistepEnv:
    """A new object whose trials are one episode, so that its actions alone lead to a state."""
    config = context.make(None).env_config
    return type(context.env)(None, {**config, "episodes_per_trial": 1, "free_shots": 0})


def _play(watch: "_Watch", task: Mapping[str, Any], seed: int) -> None:
    """A task's trial, played at random and by the environment's own players."""
    watch.begin(task)
    play_in_turn(watch.env, [task], random_player(seed))
    for kind in ("optimal", "teacher"):
        watch.begin(task)
        try:
            watch.env.run_trial([task], scripted_agent(watch.env, kind, seed=seed))
        except ConfigError:  # it has no such player
            continue


@dataclass(slots=True, eq=False)
class _Watch:
    """Compares each action that an environment gets with the list of its state.

    `wrong` is the first breach, "" without one; `places` are the states seen, and `suspects` the
    actions that were accepted there without being listed.
    """

    env: MultistepEnv
    task: Mapping[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    suspects: list[tuple[Place, str]] = field(default_factory=list)
    judged: int = 0
    wrong: str = ""
    _said: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        step = self.env._step_episode

        def stepped(session_id: str, state: Any, action: Any) -> Any:
            if session_id not in self.env.active_states:  # a player who follows the game
                return step(session_id, state, action)
            return self._judged(step, session_id, state, action)

        setattr(self.env, "_step_episode", stepped)  # noqa: B010

    def begin(self, task: Mapping[str, Any]) -> None:
        """A new trial of this task follows."""
        self.task = task
        self._said.clear()

    def _judged(self, step: Callable[..., Any], session_id: str, state: Any, action: Any) -> Any:
        """The environment's step, with a look at the list before it."""
        before = self._said.get(session_id, ())
        try:
            listed = checked_actions(self.env.admissible_actions(state))
        except SessionError as error:
            listed, self.wrong = None, self.wrong or str(error)
        place = Place(self.task, before, tuple(listed or ()))
        if listed is not None:
            self.wrong = self.wrong or _no_list(place)
        refusal = "it is malformed"
        try:
            after = step(session_id, state, action)
            refusal = refusal if truth(after[3].get("malformed", False)) else ""
        except Exception as error:
            refusal = f"it raises {named_error(error)}"
            raise
        finally:
            if listed is not None and isinstance(action, str):
                self._compare(place, action, refusal)
        self._said[session_id] = (*before, action)
        return after

    def _compare(self, place: Place, action: str, refusal: str) -> None:
        self.judged += 1
        self.places[repr((place.task, place.before))] = place
        if action in place.listed:
            self.wrong = self.wrong or (refusal and _illegal(place, action, refusal))
        elif not refusal:
            self.suspects.append((place, action))


def _no_list(place: Place) -> str:
    """Why a list is none: no action, an empty one, or one twice; "" if it is one."""
    seen = set[str]()
    for action in place.listed:
        if not action.strip():
            return f"{place}, it lists {short_repr(action)}, which is no action"
        if action in seen:
            return f"{place}, it lists {short_repr(action)} twice"
        seen.add(action)
    return "" if seen else f"{place}, an action is asked for, and it lists none"


def _illegal(place: Place, action: str, refusal: str) -> str:
    return f"{place}, {short_repr(action)} is listed, but {refusal}"


def _tried(watch: _Watch, context: Context) -> Passed:
    """Actions in the states that were seen, as long as the check's share of the time lasts."""
    rng = random.Random(context.seed)
    ends = time.perf_counter() + context.share
    env, places = _of_one_episode(context), list(watch.places.values())
    rng.shuffle(places)
    accepts_all = any(_is_missing(env, place, NONSENSE) for place in places[:1])
    for place, action in () if accepts_all else watch.suspects[:PER_STATE]:
        _check_unlisted(env, place, action)
    everywhere = list(dict.fromkeys(action for place in places for action in place.listed))
    legal = others = states = 0
    for place in places:
        if states >= LEAST_STATES and time.perf_counter() > ends:
            break
        states += 1
        most = PER_STATE if time.perf_counter() < ends else LEAST_ACTIONS
        for action in rng.sample(place.listed, min(most, len(place.listed))):
            legal += _check_listed(env, place, action)
        for action in () if accepts_all else _unlisted(env, place, everywhere, most, rng):
            others += _check_unlisted(env, place, action)
    text = f"{legal} listed and {others} other actions tried in {states} states"
    warnings = [f"no list is complete: {NONSENSE!r} is not malformed, and is in none"]
    if not accepts_all:
        tried = [_answer(env, place, NONSENSE) for place in places[:1]]
        warnings = [_READ.format(NONSENSE) for answer in tried if answer and not answer.refusal]
    return Passed(text, tuple(warnings))


_READ = "{!r} is answered as a listed action is; say in info that it is malformed, or it is legal"


def _unlisted(
    env: MultistepEnv, place: Place, everywhere: Sequence[str], most: int, rng: random.Random
) -> list[str]:
    """Some actions that are not listed in a state, and that do not say a listed one."""
    elsewhere = rng.sample(everywhere, min(4 * most, len(everywhere)))
    changed = [_changed(rng.choice(place.listed), rng.choice(everywhere), rng) for _ in elsewhere]
    offered = harvest(_conversation(env, place))
    offered = rng.sample(offered, min(4 * most, len(offered)))
    known = {words(action) for action in place.listed}
    kinds = ([a for a in kind if words(a) not in known] for kind in (elsewhere, changed, offered))
    return [action for kind in kinds for action in dict.fromkeys(kind[:most])]


def _changed(action: str, other: str, rng: random.Random) -> str:
    """An action with something else in it: another word, fewer, another number or letter."""
    opening, inner, closing = "", action, ""
    if action.startswith("[") and action.endswith("]"):
        opening, inner, closing = "[", action[1:-1], "]"
    parts, others = inner.split() or [inner], other.strip("[]").split() or [other]
    place = rng.randrange(len(parts))
    ways = {
        "word": [*parts[:place], rng.choice(others), *parts[place + 1 :]],
        "fewer": [*parts[:place], *parts[place + 1 :]],
        "more": [*parts, rng.choice(others)],
        "number": [_NUMBER.sub(lambda number: str(int(number[0]) + 1), inner, count=1)],
        "letter": [*parts[:place], parts[place][:-1], *parts[place + 1 :]],
        "turned": parts[::-1],
    }
    return f"{opening}{' '.join(ways[rng.choice(list(ways))])}{closing}"


def _check_listed(env: MultistepEnv, place: Place, action: str) -> bool:
    """Whether a listed action could be tried. Raises Failed if it is not legal."""
    answer = _answer(env, place, action)
    if answer is not None and answer.refusal:
        raise Failed(_illegal(place, action, answer.refusal))
    return answer is not None


def _check_unlisted(env: MultistepEnv, place: Place, action: str) -> bool:
    """Whether an action that is not listed could be tried. Raises Failed if it is missing."""
    missing = _is_missing(env, place, action)
    if missing:
        raise Failed(f"{place}, {short_repr(action)} is accepted, but not listed")
    return missing is not None


def _is_missing(env: MultistepEnv, place: Place, action: str) -> bool | None:
    """Whether an action that is not listed is accepted, and no listed one is answered in the same
    way: then it is no other wording of a listed one. None if it could not be tried."""
    answer = _answer(env, place, action)
    if answer is None or answer.refusal:
        return None if answer is None else False
    said = set(words(action).split())
    alike = sorted(place.listed, key=lambda one: -len(said & set(words(one).split())))
    return all(_answer(env, place, one) != answer for one in alike[:MOST_COMPARED])


def _answer(env: MultistepEnv, place: Place, action: str) -> Reaction | None:
    """The answer to an action in a state; None if the trial does not get there."""
    with SteppedTrial(env, place.task) as trial:
        if not _reach(trial, place):
            return None
        trial.act(action)
        facts = trial.facts
        refusal = "it raises" if facts.failed else "it is malformed" if facts.malformed else ""
        said = tuple(str(message["content"]) for message in trial.new_messages)
        return Reaction(refusal, said, facts.reward, facts.episode_done, facts.win)


def _conversation(env: MultistepEnv, place: Place) -> list[str]:
    """The texts that the agent reads in a state."""
    with SteppedTrial(env, place.task) as trial:
        _reach(trial, place)
        return [str(message["content"]) for message in trial.messages]


def _reach(trial: SteppedTrial, place: Place) -> bool:
    """Say the actions that lead to a state, and whether the trial is there."""
    waiting = list(place.before)
    while not trial.over:
        if trial.facts.asks_for != "action":
            trial.act("Nothing.")
        elif waiting:
            trial.act(waiting.pop(0))
        else:
            return True
    return False
