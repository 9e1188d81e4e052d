"""An environment for the tests of workers, in a module of its own that imports no torch."""

import os
import sys
import threading
import time
from typing import Any

from agentsgym import MultistepEnv
from agentsgym.envs import EnvSettings
from agentsgym.types import TrialInfo


class MisbehavingEnv(MultistepEnv):
    """Counts actions up to `length`; some actions end or block the process that it runs in."""

    class Settings(EnvSettings):
        max_steps_per_episode: int = 12
        error_allowance: int = 99

    def _begin_episode(self, session_id: str, task_data: dict[str, Any], trial: TrialInfo) -> Any:
        last = trial.last_state
        earned = int(sum(outcome.reward for outcome in trial.outcomes))
        total = last["total"] % 5 + trial.episode + earned if last else 0
        return {"length": task_data.get("length", 3), "total": total, "count": 0}

    def _format_prompt(self, state, step):
        return f"total {state['total']}, step {step}"

    def _step_episode(self, session_id, state, action):
        if action == "die":
            os._exit(3)
        if action == "hang":
            time.sleep(60)
        if action == "exit":
            sys.exit("the environment wants to leave")
        if action == "interrupt":
            raise KeyboardInterrupt("from the environment")
        if action == "unsendable":
            return state, 0.0, False, {"lock": threading.Lock()}
        count = state["count"] + 1
        after = {**state, "total": state["total"] * 31 + len(action), "count": count}
        info = {
            "pid": os.getpid(),
            "open": len(self.active_states),
            "torch": "torch" in sys.modules,
            "argv": sys.argv,
        }
        return after, float(after["total"] % 7), count >= state["length"], info
