"""Command lines."""

import os
import tempfile
from typing import Any

from hypothesis import strategies as st
from typer.testing import CliRunner

from fuzz.oracle import Area
from fuzz.values import SPECIAL_TEXTS, TEXTS

COMMANDS = st.sampled_from(["train", "eval", "play", "credit", "envs", "check", "presets", "nope"])
WORDS = (
    st.sampled_from(
        ["quickstart", "TwentyQuestions", "Bandit", "agent:optimal", "agent:random", "agent:nope",
         "builtin:nope", "--env", "--episodes", "--resume", "--output", "--json", "-h", "--seed",
         "seed=4294967296", "train=5", "train.num_generations=0", "train.max_steps=x", "nope=1",
         "env_config.hints=-1", "model=nope", "eval.episodes=0", "train.beta=.nan", "0", "-1",
         "runs/none", ".", "--debug"]
    )
    | TEXTS
    | SPECIAL_TEXTS
)  # fmt: skip
CASES = st.tuples(COMMANDS, st.lists(WORDS, max_size=4))


def check(case: tuple[str, list[str]]) -> bool:
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
    said = result.output
    assert "--debug" in words or "Traceback (most recent call last)" not in said, said[-800:]
    foreign = [mark for mark in ("\x1b[2J", "\u202e") if not any(mark in w for w in words)]
    assert not any(mark in said for mark in foreign), repr(said[-300:])
    assert result.exit_code in (0, 1, 2, 130), result.exit_code
    assert result.exit_code == 0 or said.strip(), "nothing was said"
    return bool(result.exit_code == 0)


AREA = Area("command lines", CASES, check, cost=4.0)
