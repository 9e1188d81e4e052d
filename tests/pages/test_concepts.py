"""The pictures and numbers of docs/concepts.md are those of examples/boxes.py."""

import importlib.util
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _script():
    path = ROOT / "scripts/concept_pictures.py"
    spec = importlib.util.spec_from_file_location("concept_pictures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_current_and_on_the_page():
    page = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    for name, picture in _script().pictures().items():
        stored = (ROOT / "docs/images" / name).read_text(encoding="utf-8")
        assert picture == stored, "run python scripts/concept_pictures.py"
        assert f"(images/{name})" in page


def test_a_token_of_the_agent_in_a_later_row_is_told_from_context():
    words = "<user> Where ? <end> <agent> box 1 <end> <user> Empty . <end> <agent> box 2".split()
    mask = [0] * 13 + [1, 1]
    kinds = list(_script().kinds(words, mask))
    assert kinds == ["context"] * 5 + ["again"] * 2 + ["context"] * 6 + ["agent"] * 2


def test_the_game_is_played_as_the_page_tells_it():
    played = runpy.run_path(str(ROOT / "examples/boxes.py"))
    assert played["batch"]["final_rewards"] == [1.0, 0.8, -0.4]
    assert played["by_trial"] == [[0.8, 0.8, 0.8], [0.5, 0.5, 0.5, 0.7], [-1.3, -1.3, -1.3, -1.1]]
    assert played["by_step_return"][0] == [0.0, 0.0, 0.8]
    rows = [batch.rows for batch in played["played"].values()]
    assert [len(of_one) for of_one in rows] == [1, 2, 3]
    assert [sum(sum(row.agent_token_mask) for row in of_one) for of_one in rows] == [18, 18, 18]
