"""Answers that are graded, and command lines."""

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from typer.testing import CliRunner

from agentsgym import ScriptedAgent
from agentsgym.envs.classical_reasoning.env import ClassicalReasoningEnv
from fuzz.oracle import Area
from fuzz.values import SPECIAL_TEXTS, TEXTS

# -- answers: right ones win, hostile ones run nothing ---------------------------------------------

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
ANSWER_CASES = st.tuples(
    st.integers(0, 5),
    st.builds(lambda wrap, text: wrap.format(text), WRAPS, ATOMS | EXPRESSIONS),
)
GYM = ("cryptarithm", "number_sorting", "string_insertion", "binary_matrix")


@functools.cache
def _tasks() -> tuple[Any, list[Any]]:
    sources = [{"source": "reasoning_gym", "gym_tasks": [name]} for name in GYM]
    envs = [ClassicalReasoningEnv(None, source) for source in sources]
    return envs[0], [env.get_train_dataset()["task_data"][0] for env in envs]


def check_answer(case: tuple[int, str]) -> bool:
    """The answer is graded; nothing of it ran."""
    env, tasks = _tasks()
    number, answer = case
    task = tasks[number % len(tasks)]
    batch = env.run_trial([task], ScriptedAgent([answer]))
    assert not CANARY.exists(), "the answer ran"
    assert not batch.rollouts[0].failed, batch.rollouts[0].error
    return bool(batch["final_rewards"][0] <= 1.0)


ANSWERS_AREA = Area("graded answers", ANSWER_CASES, check_answer, cost=8.0)

# -- command lines ---------------------------------------------------------------------------------

COMMANDS = st.sampled_from(["train", "eval", "play", "credit", "envs", "check", "presets", "nope"])
WORDS = (
    st.sampled_from(
        ["quickstart", "TwentyQuestions", "Bandit", "agent:optimal", "agent:random", "agent:nope",
         "builtin:nope", "--env", "--rollouts", "--resume", "--output", "--json", "-h", "--seed",
         "seed=4294967296", "train=5", "train.num_generations=0", "train.max_steps=x", "nope=1",
         "env_config.hints=-1", "model=nope", "eval.rollouts=0", "train.beta=.nan", "0", "-1",
         "runs/none", ".", "--debug"]
    )
    | TEXTS
    | SPECIAL_TEXTS
)  # fmt: skip
COMMAND_CASES = st.tuples(COMMANDS, st.lists(WORDS, max_size=4))


def check_command(case: tuple[str, list[str]]) -> bool:
    """The command ends with a status of its own and no traceback."""
    from agentsgym.cli.app import app

    command, words = case
    if command in ("train", "check", "play") and "--resume" not in words:
        words = [*words, "nonsense=1"]  # or a few would start to work in earnest
    words = [word.replace("\x00", "") for word in words]
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            result: Any = CliRunner().invoke(app, [command, *words])
        finally:
            os.chdir(before)
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    output = result.output
    assert "--debug" in words or "Traceback (most recent call last)" not in output, output[-800:]
    foreign = [mark for mark in ("\x1b[2J", "\u202e") if not any(mark in w for w in words)]
    assert not any(mark in output for mark in foreign), repr(output[-300:])
    assert result.exit_code in (0, 1, 2, 130), result.exit_code
    assert result.exit_code == 0 or output.strip(), "nothing was said"
    return bool(result.exit_code == 0)


COMMANDS_AREA = Area("command lines", COMMAND_CASES, check_command, cost=4.0)
