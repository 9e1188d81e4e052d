"""Truth values and numbers of odd types, said by environments and by graders of tools."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from agentsgym import ScriptedAgent, ToolEnv
from agentsgym.evaluation.metrics import record, summarize
from fuzz.oracle import Area
from fuzz.values import NUMBERS, odd_values
from helpers import CountdownEnv

KINDS: tuple[Any, ...] = (bool, int, float, np.bool_, np.float32, np.float16, np.int8, np.array,
         torch.tensor, Decimal, Fraction, np.longdouble)  # fmt: skip
NOT_ONE = (lambda value: [value], lambda value: np.array([value]), lambda value: {"a": value},
           lambda value: torch.tensor([value]), str, repr, complex, lambda value: (value, value),
           lambda value: str(value).encode())  # fmt: skip


class Hostile:
    """Claims to be a number, and is none."""

    shape = ()

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __float__(self) -> float:
        return self._answer  # type: ignore[no-any-return]

    item = __bool__ = __index__ = __len__ = __hash__ = __float__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


def _made(kind: Any, value: Any) -> Any:
    try:
        return kind(value)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        return value


PLAIN = st.sampled_from([0, 1, True, False]) | NUMBERS
ONES = st.builds(_made, st.sampled_from(KINDS), PLAIN)
SAID = ONES | st.builds(_made, st.sampled_from(NOT_ONE), PLAIN) | odd_values(0)
SAID |= st.builds(Hostile, odd_values(0))


def value_of(said: Any) -> float | None:
    """The number that a value is, by a list of its types; None if it is none."""
    if isinstance(said, np.generic | np.ndarray | torch.Tensor):
        said = said.tolist()
    if not isinstance(said, bool | int | float | np.longdouble | Decimal | Fraction):
        return None
    try:
        return float(said)
    except OverflowError:
        return math.inf


class SayingEnv(CountdownEnv):
    said: tuple[Any, Any, Any] = (0.0, True, {})

    def _step_episode(self, session_id: str, state: Any, action: str) -> Any:
        return state, *self.said


class GradingEnv(ToolEnv):
    said: Any = 0.0

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": "?"}

    def grade(self, state: dict[str, Any], answer: str) -> Any:
        return self.said


def check(case: tuple[Any, Any, Any]) -> bool:
    """What is a number or a truth value is counted as it is, anything else fails the rollout."""
    reward, done, win = case
    env = SayingEnv(None, {"max_steps_per_episode": 1})
    env.said = reward, done, {"win": win, "informing": win}
    rollout = _play(env)
    flags = [value_of(done), *([] if win is None else [value_of(win)])]
    paid = value_of(reward)
    fits = paid is not None and abs(paid) <= 1e30
    hostile = any(isinstance(one, Hostile) for one in case)
    if not hostile:
        assert rollout.failed == (not fits or any(one not in (0.0, 1.0) for one in flags)), case
    if not rollout.failed and not hostile:
        assert rollout.final_reward == paid
        assert rollout.episodes[0].win == (None if win is None else flags[1] == 1.0)
        assert summarize([record(rollout)])["reward"] == paid
    grader = GradingEnv()
    grader.said = reward
    graded = _play(grader)
    if not hostile:
        assert graded.failed == (not fits), reward
    return not rollout.failed


def _play(env: Any) -> Any:
    (rollout,) = env.run_trial([{"rewards": [0.0]}], ScriptedAgent(["a"])).rollouts
    assert not rollout.failed or rollout.error
    return rollout


AREA = Area("truth values and numbers", st.tuples(SAID, st.booleans() | SAID, SAID), check)
