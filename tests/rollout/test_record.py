"""What a rollout records of episodes and of programs, against what was said."""

import math
import re
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ANSWERS, PLANNED, TOKENIZERS, Scripted, check, codec_of, pairs, rendered

from agentsgym import DirectOutputAgent, EnvPool, MultistepEnv, SamplingParams, register
from agentsgym.rollout import run
from agentsgym.types import ModelCall
from helpers import assistant, system, user

# -- episodes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What is played: episodes of so many `lengths`, and which visit to which place fails."""

    lengths: tuple[int, ...]
    carry: str
    system: bool
    limit: int | None
    budget: int | None
    fault: tuple[str, int] | None

    @property
    def config(self):
        config = {"carry": self.carry, "episodes_per_trial": len(self.lengths)}
        config |= {"system_prompt": "Play."} if self.system else {}
        return config | ({"context_limit": self.limit} if self.limit else {})


PLACES = ("begin", "prompt", "step", "reward", "note", "memory", "reflection", "result")
PLANS = st.builds(
    Plan,
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    carry=st.sampled_from(["none", "full", "summary"]),
    system=st.booleans(),
    limit=st.none() | st.integers(1, 400),
    budget=st.none() | st.none() | st.integers(20, 600),
    fault=st.none() | st.tuples(st.sampled_from(PLACES), st.integers(0, 3)),
)


class TalkEnv(MultistepEnv):
    """Each prompt tells its episode and step."""

    plan: Plan
    visits: Counter[str]

    def _codec_for(self, tokenizer, options):
        return codec_of(tokenizer)

    def _begin_episode(self, session_id, task_data, trial):
        self._visit("begin")
        return {"episode": trial.episode, "acted": 0}

    def _format_prompt(self, state, step):
        self._visit("prompt")
        return f"Question {state['episode']}.{step}?"

    def _step_episode(self, session_id, state, action):
        self._visit("step")
        acted = state["acted"] + 1
        return state | {"acted": acted}, 1.0, acted == self.plan.lengths[state["episode"]], {}

    def _calculate_reward(self, state, actions, final_action, step_rewards):
        self._visit("reward")
        return sum(step_rewards)

    def _format_note_request(self, state, step):
        self._visit("note")
        return f"Note {state['episode']}.{step}!"

    def _format_memory(self, reflection):
        self._visit("memory")
        return f"Memory: {reflection.replace('<', '(')}"  # only the agent's thoughts are thoughts

    def _format_reflection(self, state, reward):
        self._visit("reflection")
        return f"Reflect {state['episode']}.{state['acted']}!"

    def _format_result(self, state, reward):
        self._visit("result")
        return "Over."

    def _visit(self, place):
        if self.plan.fault == (place, self.visits[place]):
            raise RuntimeError(PLANNED)
        self.visits[place] += 1


def place_of(one):
    """Episode, and the word, of what a request asks for."""
    word, episode, _ = re.findall(r"(Question|Note|Reflect) (\d)\.(\d)", one.messages[-1][1])[-1]
    return int(episode), word


def episodes_origin(asked):
    def origin(number):
        before, one = asked[number - 1], asked[number]
        if number and one.messages[: len(before.talk)] == before.talk:
            return number - 1, ""
        (episode, word), (own, _) = place_of(before), place_of(one)
        noted = number and word == "Note" and episode == own
        return None, "note" if noted else "episode"

    return origin


@settings(max_examples=60, deadline=None)
@given(
    plan=PLANS,
    answers=ANSWERS,
    fails=st.none() | st.none() | st.integers(0, 8),
    name=st.sampled_from(sorted(TOKENIZERS)),
    texts=st.booleans(),
)
def test_what_episodes_say_is_what_is_recorded(tmp_path_factory, plan, answers, fails, name, texts):
    register("Talk", TalkEnv)
    TalkEnv.plan, TalkEnv.visits = plan, Counter()
    tokenizer = TOKENIZERS[name]
    scripted = Scripted(tokenizer, answers, fails)
    agent = scripted if texts else DirectOutputAgent(scripted, SamplingParams(max_tokens=40))
    if texts:
        agent = SimpleNamespace(get_action=scripted.get_action)
    row = {"env_class_path": "Talk", "env_config": plan.config, "task_data": {}}
    pool = EnvPool(tokenizer)
    (rollout,) = run([row], agent, envs=pool, max_rollout_tokens=plan.budget).rollouts
    room = plan.budget or math.inf  # a text that does not fit is withdrawn, with what it answers
    asked = [o for o in scripted.asked if len(rendered(tokenizer, o)) + len(o.ids or ()) <= room]
    check(rollout, tokenizer, asked, episodes_origin(asked), tmp_path_factory.mktemp("stored"))
    _check_episodes(rollout, plan, asked)


def _check_episodes(rollout, plan, asked):
    """Each request adds one message to the conversation before it, or to a new one, and asks after
    those of the episodes that it should know; and each episode has its own messages."""
    opening = [("system", "Play.")] if plan.system else []
    before, last = [], (-1, "Note")
    for one in asked:
        episode, word = place_of(one)
        same = last[1] == "Question" and (plan.carry == "full" or episode == last[0])
        same |= word == "Reflect" and episode == last[0]
        assert one.messages[:-1] == (before if same else opening)
        assert one.messages[-1][0] == "user" and episode >= last[0]
        said = {int(e) for e, _ in re.findall(r"Question (\d)\.(\d)", str(one.messages))}
        known, whole = set(range(episode + 1)), plan.limit is None and plan.carry == "full"
        assert said == known if whole else said <= known
        unseen = word == "Reflect" and not same  # the budget had no room for the episode
        assert plan.carry == "full" or said == (set() if unseen else {episode})
        before, last = one.talk, (episode, word)
    for episode in rollout.episodes:
        own, before = [], []
        for one in asked:
            new = one.talk[len(before) :] if one.talk[: len(before)] == before else one.talk
            own += new if place_of(one)[0] == episode.index else []
            before = one.talk
        assert not own or pairs(episode.messages) == own


# -- programs --------------------------------------------------------------------------------------

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
SAYS = {"system": system, "user": user, "assistant": assistant}
HOW = ("last", "last", "on", "on", "again", "changed", "more", "tools", "new", "refused")
MOVES = st.lists(st.tuples(st.sampled_from(HOW), st.integers(0, 99)), min_size=1, max_size=12)


class Program:
    """Makes calls: goes on with, repeats or changes what was said before. Each text that it writes
    is another one."""

    def __init__(self, moves, episode, talks):
        self.moves, self.episode, self.number = moves, episode, 0
        self.talks = [
            *talks,
            ([("system", "Play."), ("user", "Go.")], ()),
            ([("user", "Help.")], ()),
        ]
        self.calls = []

    def next_call(self, offered):
        how, choice = self.moves[self.number]
        self.number += 1
        messages, tools = self.talks[-1 if how == "last" else choice % len(self.talks)]
        text = ("user", f"Text {choice} {len(self.calls)} {self.number}.")
        if how == "again" and self.calls:
            messages, tools = self.calls[choice % len(self.calls)]
        elif how == "changed":
            at = choice % len(messages)
            role, said = messages[at]
            messages = [*messages[:at], (role, f"{said} {self.number}"), *messages[at + 1 :]]
        elif how == "more":
            messages = [*messages, text]
        elif how == "tools":
            tools = () if tools else offered
        elif how == "new":
            messages = [text]
        elif how == "refused" and self.calls:
            messages = [*messages, ("user", "No.")]
        return messages, tools

    def answered(self, messages, tools, talk):
        self.calls.append((messages, tools))
        self.talks.append(([*talk, ("user", f"And {len(self.talks)}?")], tools))


class CallsEnv(MultistepEnv):
    """Makes the calls of a program; `plan` has its moves, by episode, and the engine."""

    offers_tools = True
    plan: Any

    def _codec_for(self, tokenizer, options):
        return codec_of(tokenizer)

    def _begin_episode(self, session_id, task_data, trial):
        del self.plan.made[len(self.plan.asked) :]  # one for which the budget had no room
        talks = trial.last_state.talks if self.config.carry == "full" and trial.episode else ()
        return Program(self.plan.moves[trial.episode], trial.episode, talks)

    def _format_prompt(self, state, step):
        if self.plan.fault == ("prompt", len(self.plan.asked)):
            raise RuntimeError(PLANNED)
        messages, tools = state.next_call(self.plan.offered)
        self.plan.made.append((messages, tools, state.episode))
        return ModelCall(tuple(SAYS[role](text) for role, text in messages), tools)

    def _step_episode(self, session_id, state, action):
        messages, tools, _ = self.plan.made[-1]
        if messages[-1] == ("user", "No."):  # which the template refuses
            self.plan.made.pop()
        else:
            one = self.plan.asked[-1]
            state.answered(messages, tools, [*messages, ("assistant", one.text)])
        if self.plan.fault == ("step", len(self.plan.asked)):
            raise RuntimeError(PLANNED)
        return state, 1.0, state.number == len(state.moves), {}


def calls_origin(asked, carry):
    """The origin of each call, told from the conversations alone."""

    def origin(number):
        one = asked[number]
        earlier = [k for k in range(number) if carry == "full" or asked[k].episode == one.episode]
        same = [k for k in earlier if asked[k].tools == one.tools]
        if any(asked[k].messages == one.messages for k in same):
            return None, "retry"
        continued = [k for k in same if one.messages[: len(asked[k].talk)] == asked[k].talk]
        if continued:
            return max(continued, key=lambda k: len(asked[k].talk)), ""
        opened = [asked[k].tools for k in earlier if opening(asked[k]) == opening(one)]
        if not earlier:
            return None, "episode"
        return None, ("history" if one.tools in opened else "tools") if opened else "conversation"

    return origin


def opening(one):
    roles = [role for role, _ in one.messages]
    return one.messages[: roles.index("user") + 1]


@settings(max_examples=60, deadline=None)
@given(
    moves=st.lists(MOVES, min_size=1, max_size=2),
    carry=st.sampled_from(["none", "full"]),
    answers=ANSWERS,
    fails=st.none() | st.none() | st.integers(0, 12),
    fault=st.none() | st.tuples(st.sampled_from(["prompt", "step"]), st.integers(1, 20)),
    budget=st.none() | st.integers(100, 600),
    name=st.sampled_from(sorted(TOKENIZERS)),
)
def test_what_programs_call_is_what_is_recorded(
    tmp_path_factory, moves, carry, answers, fails, fault, budget, name
):
    register("Calls", CallsEnv)
    tokenizer = TOKENIZERS[name]
    scripted = Scripted(tokenizer, answers, fails)
    offered = (WEATHER,) if name.startswith("qwen") else ()
    plan = SimpleNamespace(moves=moves, fault=fault, asked=scripted.asked, made=[], offered=offered)
    CallsEnv.plan = plan
    config = {"carry": carry, "episodes_per_trial": len(moves), "max_steps_per_episode": 99}
    row = {"env_class_path": "Calls", "env_config": config, "task_data": {}}
    agent = DirectOutputAgent(scripted, SamplingParams(max_tokens=40))
    (rollout,) = run([row], agent, envs=EnvPool(tokenizer), max_rollout_tokens=budget).rollouts
    asked = scripted.asked
    for one, made in zip(asked, plan.made, strict=False):
        assert one.messages == made[0]
        one.messages, one.tools, one.episode = made
    origin = calls_origin(asked, carry)
    check(rollout, tokenizer, asked, origin, tmp_path_factory.mktemp("stored"))
