"""Environments and an engine that several tests share, in a module that imports no torch, so that
worker processes don't either."""

import os
import time
from dataclasses import astuple
from pathlib import Path
from typing import Any

from agentsgym import MultistepEnv, ToolEnv, tool
from agentsgym.envs import EnvSettings
from agentsgym.types import EngineStats, GenerationResult
from helpers import CountdownEnv


class TextEngine:
    """An engine that always says the same."""

    capacity = 8
    stats = EngineStats()

    def __init__(self, tokenizer, text="a"):
        self.tokenizer, self.text = tokenizer, text
        self._requests = []

    def submit(self, requests):
        self._requests += requests

    def poll(self):
        requests, self._requests = self._requests, []
        return [self.answer(request) for request in requests]

    def answer(self, request):
        ids = tuple(self.tokenizer.encode(self.text))
        return GenerationResult(request.session_id, ids, (-1.0,) * len(ids), self.text)

    def release(self, session_ids):
        pass


class SayingEngine(TextEngine):
    """Samples the given texts one after the other, each with the end of the turn; the first after
    `delay` s."""

    def __init__(self, tokenizer, texts, delay=0.0):
        super().__init__(tokenizer)
        self.texts, self.delay = list(texts), delay

    def answer(self, request):
        time.sleep(self.delay)
        self.delay = 0.0
        ids = [*self.tokenizer.encode(self.texts.pop(0)), self.tokenizer.eos_token_id]
        return GenerationResult(request.session_id, tuple(ids), (-1.0,) * len(ids), "unused")


PRICES = {"tea": 3, "milk": 1}


class SumEnv(ToolEnv):
    """The sum of two prices is 4."""

    def _initialize_episode(self, session_id, task_data):
        return {"prompt": "How much are both?", "looked": 0}

    @tool
    def price(self, state, item: str) -> int:
        """The price of an item."""
        state["looked"] += 1
        return PRICES[item]

    def grade(self, state, answer):
        return answer == "4"


class EndingEnv(MultistepEnv):
    """Lasts `length` actions. A task's `fault` ("prompt", "step", "exit", "reward", "begin", "die")
    happens in its `episode`; with `log`, a file tells of each beginning and end."""

    class Settings(EnvSettings):
        max_steps_per_episode: int = 6

    def __init__(self, tokenizer=None, env_config=None):
        super().__init__(tokenizer, env_config)
        self.calls: list[tuple[str, int]] = []
        self.sessions: list[str] = []

    def begun(self) -> int:
        return sum(what == "begin" for what, _ in self.calls)

    def ended(self) -> int:
        """The number of states that ended; each at most once, and only if it began."""
        ends = [number for what, number in self.calls if what == "end"]
        assert len(ends) == len(set(ends))
        return len(ends)

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        episode = self.sessions.count(session_id)
        self.sessions.append(session_id)
        state = {"task": task_data, "count": 0, "episode": episode, "number": len(self.sessions)}
        self._fault(state, "begin")
        self._note("begin", state)
        return state

    def _format_prompt(self, state: dict[str, Any], step: int) -> str:
        if step:
            self._fault(state, "prompt")
        return f"step {step}"

    def _step_episode(self, session_id, state, action):
        for kind in ("step", "exit", "die"):
            self._fault(state, kind)
        count = state["count"] + 1
        return {**state, "count": count}, 1.0, count == state["task"].get("length", 2), {}

    def _calculate_reward(self, state, actions, final_action, step_rewards):
        self._fault(state, "reward")
        return sum(step_rewards)

    def _end_episode(self, session_id: str, state: dict[str, Any]) -> None:
        self._note("end", state)

    def _fault(self, state: dict[str, Any], kind: str) -> None:
        task = state["task"]
        if task.get("fault") != kind or state["episode"] != task.get("episode", 0):
            return
        if kind == "die":
            flag = Path(f"{task['log']}.died")
            if not flag.exists():
                flag.touch()
                os._exit(3)
            return
        raise SystemExit(2) if kind == "exit" else RuntimeError(f"fault in {kind}")

    def _note(self, what: str, state: dict[str, Any]) -> None:
        self.calls.append((what, state["number"]))
        if "log" in state["task"]:
            with open(state["task"]["log"], "a") as log:
                log.write(f"{what}\n")


class CupsEnv(MultistepEnv):
    """Say "look" to be told where the ball is, or a cup's number. One action ends the episode.

    `at_the_end` of a task says what `_format_prompt` does in a finished state.
    """

    def _initialize_episode(self, session_id, task_data):
        return {"task": task_data, "answer": "", "done": False}

    def _format_prompt(self, state, step):
        if step == 0:
            return "Which cup?"
        if state["done"] and state["task"].get("at_the_end"):
            return _AT_THE_END[state["task"]["at_the_end"]](state)
        return state["answer"]

    def _step_episode(self, session_id, state, action):
        ball = str(state["task"]["ball"])
        answer = f"The ball is under cup {ball}." if action == "look" else "Nothing there."
        state = {**state, "answer": answer, "done": True}
        return state, float(action == ball), True, {"win": action == ball}

    def _calculate_reward(self, state, actions, final_action, step_rewards):
        return sum(step_rewards) + 0.25


def _leave(state):
    raise SystemExit("no prompt")


_AT_THE_END = {
    "raise": lambda state: state["no such key"],
    "leave": _leave,
    "nothing": lambda state: None,
    "empty": lambda state: "  ",
}


class FactsEnv(CountdownEnv):
    """Keeps what each episode is told in its state, and says it in the first prompt."""

    def _begin_episode(self, session_id, task_data, trial):
        last = trial.last_state
        facts = astuple(trial.without_state())
        return {
            **self._initialize_episode(session_id, task_data),
            "facts": (*facts, trial.scored, last and last["played"]),
        }

    def _format_prompt(self, state, step):
        return repr(state["facts"]) if step == 0 else str(step)
