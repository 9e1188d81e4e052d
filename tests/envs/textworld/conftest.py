"""A cache folder with games that the folder's tests share."""

import pytest

pytest.importorskip("textworld", reason="needs the extra agentsgym[textworld]")

from agentsgym.envs.textworld.games import Recipe, ensure_games


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("textworld")
    ensure_games(folder, Recipe(3, 6, 4), [0, 1, 2])  # in one process
    return str(folder)
