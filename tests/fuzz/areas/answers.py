"""Answers that are graded: right ones win, hostile ones run nothing."""

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from agentsgym import ScriptedAgent
from agentsgym.envs.classical_reasoning import ClassicalReasoningEnv
from fuzz.oracle import Area
from fuzz.values import TEXTS

CANARY = Path(tempfile.gettempdir()) / f"agentsgym-fuzz-canary-{os.getpid()}"
CODE = [
    "__import__('os').system('touch {}')",
    "open('{}','w')",
    "exec(\"open('{}','w')\")",
    "(lambda: open('{}','w'))()",
    "[x for x in [open('{}','w')]]",
    "().__class__.__base__.__subclasses__()",
    "\\input{{{}}}",
    "{{__import__('os').system('touch {}')}}",
    "9**9**9**9",
    "factorial(10**9)",
    "1/0",
    '{{"right": true}}',
]
WRAPS = st.sampled_from(["{}", "<answer>{}</answer>", "\\boxed{{{}}}", "${}$", "[[{}]]", "1+{}"])
ATOMS = st.sampled_from([code.format(CANARY) for code in CODE]) | TEXTS
EXPRESSIONS = st.text("0123456789+-*/^()[],. xQ_\n", max_size=40)
CASES = st.tuples(
    st.integers(0, 5),
    st.builds(lambda wrap, text: wrap.format(text), WRAPS, ATOMS | EXPRESSIONS),
)
GYM = ("cryptarithm", "number_sorting", "string_insertion", "sudoku", "binary_matrix")


@functools.cache
def _tasks() -> tuple[Any, list[Any]]:
    gym = ClassicalReasoningEnv(None, {"source": "reasoning_gym", "gym_tasks": list(GYM)})
    rows = gym.get_train_dataset()["task_data"]
    chosen = [next(t for t in rows if name in str(t)) for name in GYM]
    return gym, chosen


def check(case: tuple[int, str]) -> bool:
    """The answer is graded; nothing of it ran."""
    env, tasks = _tasks()
    number, answer = case
    task = tasks[number % len(tasks)]
    batch = env.run_trial([task], ScriptedAgent([answer]))
    assert not CANARY.exists(), "the answer ran"
    assert not batch.rollouts[0].failed, batch.rollouts[0].error
    return bool(batch["final_rewards"][0] <= 1.0)


AREA = Area("graded answers", CASES, check, cost=4.0)
