"""An environment that counts the beginnings and ends of its episodes, in a module of its own so
that a worker imports no torch."""

import os
from pathlib import Path
from typing import Any

from agentsgym import MultistepEnv
from agentsgym.envs import EnvSettings


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
