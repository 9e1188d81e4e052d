"""Plays sessions that hang, each says so with its process's id: `python hanging.py WORKERS HOW`."""

import os
import signal
import sys
import time

from doubles import TextEngine

from agentsgym import MultistepEnv, SamplingParams
from helpers import build_tokenizer

WORKERS, HOW = int(sys.argv[1]), sys.argv[2]


class Hanging(MultistepEnv):
    blocking = True

    def _initialize_episode(self, session_id, task_data):
        return 0

    def _format_prompt(self, state, step):
        return "go"

    def _step_episode(self, session_id, state, action):
        os.write(2, f"hanging {os.getpid()}\n".encode())
        if action == "busy":
            return 9**9**9**9, 0.0, True, {}
        time.sleep(600)
        return state, 0.0, True, {}


class Agent:
    sampling = SamplingParams(max_tokens=4)
    engine = TextEngine(build_tokenizer(None), HOW)

    def get_action(self, messages, agent_state):
        raise NotImplementedError


def first_is_a_request(number, frame):
    """As `ctrl_c_asks` of a training, which would load torch."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, first_is_a_request)
    Hanging(Agent.engine.tokenizer, {"workers": WORKERS}).run_trial([{}], Agent(), 3)
