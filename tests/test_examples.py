"""The examples run, shortened."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_twenty_questions():
    assert re.search(r"held-out win rate: 0\.\d+", run("twenty_questions.py", "--quick"))


def test_own_environment():
    printed = run("own_environment.py", "3")
    assert re.search(r"held-out win rate: 0\.\d+ before, 0\.\d+ after 3 steps", printed)
