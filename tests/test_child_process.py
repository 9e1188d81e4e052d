import os
import signal
import subprocess
import sys
import time

import pytest

from vllm_program import alive, assert_gone

BUSY = "import os\nprint(os.getpid(), flush=True)\n9**9**9**9\n"
PARENT = """
import os, sys, threading, time
from agentsgym.child_process import python_environment, start_python
held = []
def start():
    held.append(start_python("busy_in_c", "an argument", env=python_environment()))
thread = threading.Thread(target=start)
thread.start()
thread.join()
{then}
time.sleep(60)
"""


@pytest.fixture
def family(tmp_path):
    """Starts a parent that starts a child which is busy in C code; (parent, the child's pid)."""
    (tmp_path / "busy_in_c.py").write_text(BUSY)
    parents, children = [], []

    def start(then=""):
        command = [sys.executable, "-P", "-c", PARENT.format(then=then)]
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": path}
        parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        parents.append(parent)
        children.append(int(parent.stdout.readline()))
        return parent, children[-1]

    yield start
    for parent in parents:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    for child in children:
        if alive(child):
            os.kill(child, signal.SIGKILL)


pytestmark = [
    pytest.mark.clock,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]


def test_a_child_that_is_busy_in_c_code_ends_within_two_seconds_of_its_killed_parent(family):
    parent, child = family()
    time.sleep(0.2)
    assert alive(child)  # the end of the thread that started it does it no harm
    parent.kill()
    assert_gone([child], 2.0)


def test_a_forked_child_of_the_parent_does_not_keep_the_others_alive(family):
    parent, child = family("if os.fork() == 0:\n    time.sleep(20)\n    os._exit(0)")
    time.sleep(0.2)
    parent.kill()
    assert_gone([child], 2.0)
