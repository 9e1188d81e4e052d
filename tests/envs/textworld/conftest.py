"""A cache folder that the folder's tests share."""

import pytest

pytest.importorskip("textworld", reason="needs the extra agentsgym[textworld]")


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("textworld"))
