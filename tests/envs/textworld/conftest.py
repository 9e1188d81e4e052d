"""A cache folder that the folder's tests share."""

import pytest

pytest.importorskip("textworld", reason="needs the extra agentsgym[textworld]")


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("textworld"))


@pytest.fixture(scope="session", autouse=True)
def _end_workers():
    yield
    from agentsgym.rollout.processes.worker import stop_workers

    stop_workers()
