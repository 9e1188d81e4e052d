"""Files of a run or a model that were cut, overwritten or swapped."""

import functools
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from typer.testing import CliRunner

from fuzz.oracle import Area, refused_with
from fuzz.parts import chat_tokenizer, tiny_model

RUN = """\
env: TwentyQuestions
env_config: {max_steps_per_episode: 2, table: quickstart}
model: model
threads: 1
signal_check: false
train:
  max_steps: 2
  per_device_train_batch_size: 4
  num_generations: 4
  max_action_tokens: 3
  save_steps: 1
  use_cpu: true
eval: {rollouts: 4}
"""


@dataclass(frozen=True)
class Damage:
    """What happens to one file: `number` counts the files of the directory."""

    number: int
    kind: str
    where: float
    content: bytes


DAMAGES = st.builds(
    Damage,
    st.integers(0, 10_000),
    st.sampled_from(["cut", "empty", "flip", "replace", "remove", "insert", "directory"]),
    st.floats(0, 1),
    st.binary(max_size=30)
    | st.sampled_from([b"null", b"[]", b"{}", b"5", b"\xff\xfe", b"[" * 5000, b'{"a": NaN}']),
)


@functools.cache
def _finished() -> Path:
    """A directory with `model/` and a finished run in `runs/run`."""
    from agentsgym.runs import load_config, train_run

    home = Path(tempfile.mkdtemp(prefix="agentsgym-fuzz-"))
    tiny_model().save_pretrained(home / "model")
    chat_tokenizer().save_pretrained(home / "model")
    (home / "run.yaml").write_text(RUN)
    before = os.getcwd()
    os.chdir(home)
    try:
        train_run(load_config("run.yaml"))
    finally:
        os.chdir(before)
    return home


def damage(folder: Path, what: Damage) -> Path:
    """Damage one file below `folder`; returns which."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = files[what.number % len(files)]
    data = path.read_bytes()
    at = int(what.where * len(data))
    if what.kind in ("remove", "directory"):
        path.unlink()
        if what.kind == "directory":
            path.mkdir()
        return path
    changed = {
        "cut": data[:at],
        "empty": b"",
        "flip": data[:at] + bytes(255 - byte for byte in data[at : at + 4]) + data[at + 4 :],
        "replace": what.content,
        "insert": data[:at] + what.content + data[at:],
    }
    path.write_bytes(changed[what.kind])
    return path


def check_run(case: tuple[Damage, str]) -> bool:
    """`credit`, `eval` and `train --resume` work on what is left, or say a sentence."""
    from agentsgym.cli.app import app

    what, command = case
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        shutil.copytree(_finished(), home)
        damage(home / "runs", what)
        os.chdir(home)
        words = {
            "credit": ["credit", "runs/run"],
            "eval": ["eval", "runs/run", "--rollouts", "2"],
            "resume": ["train", "--resume", "runs/run"],
        }[command]
        try:
            result: Any = CliRunner().invoke(app, words)
        finally:
            os.chdir(before)
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    assert "Traceback (most recent call last)" not in result.output, result.output[-800:]
    assert result.exit_code in (0, 1, 2), (result.exit_code, result.output[-300:])
    assert result.exit_code == 0 or result.output.strip(), "nothing was said"
    return bool(result.exit_code == 0)


def check_model(what: Damage) -> bool:
    """A damaged model directory loads, or says what is wrong."""
    from agentsgym.envs import ConfigError
    from agentsgym.runs.models import load_pretrained

    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(_finished() / "model", Path(folder) / "model")
        damage(Path(folder), what)
        try:
            load_pretrained(Path(folder) / "model")
        except ConfigError as error:
            return refused_with(error)
    return True


COMMANDS = st.sampled_from(["credit", "credit", "eval", "resume"])
RUN_AREA = Area("files of a run", st.tuples(DAMAGES, COMMANDS), check_run, cost=6.0)
MODEL_AREA = Area("files of a model", DAMAGES, check_model, cost=2.0)
