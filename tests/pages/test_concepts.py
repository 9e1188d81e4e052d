"""The pictures and numbers of docs/concepts.md are those of examples/boxes.py."""

import runpy
from pathlib import Path

import concept_pictures

ROOT = Path(__file__).parents[2]


def test_pictures_are_current_and_on_the_page():
    page = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    for name, picture in concept_pictures.pictures().items():
        stored = (ROOT / "docs/images" / name).read_text(encoding="utf-8")
        assert picture == stored, "run python scripts/concept_pictures.py"
        assert f"(images/{name})" in page


def test_the_game_is_played_as_the_page_tells_it():
    played = runpy.run_path(str(ROOT / "examples/boxes.py"))
    assert played["batch"]["final_rewards"] == [1.0, 0.8, -0.4]
    assert played["by_trial"] == [[0.8, 0.8, 0.8], [0.5] * 4, [-1.3] * 4]
    assert played["by_step_return"][0] == [0.0, 0.0, 0.8]
    rows = [batch.rows for batch in played["played"].values()]
    assert [len(of_one) for of_one in rows] == [1, 2, 3]
    assert [sum(sum(row.agent_token_mask) for row in of_one) for of_one in rows] == [18, 18, 18]
