"""Worker processes of environments end with the tests."""

import pytest

from agentsgym.rollout.processes.worker import stop_workers


@pytest.fixture(scope="session", autouse=True)
def _end_workers():
    yield
    stop_workers()
