"""`agentsgym eval --suite`."""

import importlib.util
import json
from pathlib import Path

import pytest

from agentsgym import make
from agentsgym.cli.console import out
from agentsgym.cli.suite import suite_tables
from agentsgym.evaluation import Played, assess, parse_suite, suite_figures
from agentsgym.runs import parse_config
from agentsgym.runs.files import read_rollouts
from agentsgym.runs.suites import load_suite, place_of, requests_of, suites
from agentsgym.types import Rollout
from agentsgym.types.requests import context_overflow

SCRIPT = Path(__file__).parents[2] / "scripts/suites.py"
FROZEN = {"explore": (1, "ad1e55efa6b003a6")}
"""Whoever changes a suite raises its version here and in scripts/suites.py."""


def test_suites_are_frozen():
    assert {name: (load_suite(name).version, load_suite(name).digest) for name in suites()} == (
        FROZEN
    )


def test_suites_and_their_references_are_those_of_the_script():
    spec = importlib.util.spec_from_file_location("suites_script", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert {name: script.text_of(suite) for name, suite in script.suites().items()} == suites()


def test_no_task_is_in_a_dataset_of_its_environment():
    for game in load_suite("explore").games:
        env = make(game.env, env_config=game.env_config)
        if game.env in ("Explore", "Bandit"):
            seeds = {task["seed"] for task in game.frozen_tasks}
            for rows in (env.get_train_dataset(), env.get_eval_dataset()):
                assert not seeds & {task["seed"] for task in rows["task_data"]}


def figures(invoke, *arguments):
    result = invoke("eval", *arguments, "--suite", "explore", "--episodes", "8", "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_best_player_earns_one_and_the_same_again(invoke, tmp_path):
    results = figures(invoke, "agent:optimal", "-o", str(tmp_path))
    assert results["digest"] == FROZEN["explore"][1] and not results["complete"]
    low, high = results["information"]["ci95"]
    assert low <= 1.0 <= high and low > 0.7
    exact = {"place", "place-two-facts", "switches", "rule", "mastermind", "twenty-questions"}
    assert {g["name"] for g in results["games"] if g["of_best"]["value"] == 1.0} >= exact
    again = figures(invoke, "agent:optimal", "-o", str(tmp_path))
    assert again == results
    assert len(list(read_rollouts(tmp_path / "place"))) == 8
    stored = json.loads((tmp_path / "suite.json").read_text())
    assert stored.pop("schema") == 1 and stored == results


def test_the_best_player_that_never_explores_earns_zero(invoke):
    results = figures(invoke, "agent:never")
    low, high = results["information"]["ci95"]
    assert low <= 0.0 <= high
    assert {game["name"] for game in results["games"]} == {
        "place", "place-noisy", "place-two-facts", "place-costly", "switches", "rule"
    }  # fmt: skip
    assert all(game["evaluation"]["metrics"]["informing"] == 0 for game in results["games"])


def test_the_noise_of_a_game_is_its_own():
    run = parse_config({"env": "Explore", "model": "agent:random"})
    requests = [requests_of(g, place_of(g, run), 0) for g in load_suite("explore").games[:2]]
    assert not {r.seed for r in requests[0]} & {r.seed for r in requests[1]}
    first = load_suite("explore").games[0]
    assert requests_of(first, place_of(first, run), 0, most_tasks=5) == requests[0][:5]


FILE = """\
games:
- {name: small, env: Bandit, env_config: {arms: 2}, episodes: 6}
- {name: codes, env: Mastermind, tasks: [{solution: red blue}, {solution: red red}],
   rollouts_per_task: 3}
"""


def test_a_suite_of_ones_own(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(FILE)
    result = invoke("eval", "agent:random", "--suite", "mine.yaml", "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert "agent:random on mine 1" in result.stdout and "codes" in result.stdout
    assert [len(list(read_rollouts(f"out/{name}"))) for name in ("small", "codes")] == [6, 6]
    assert parse_suite({"name": "mine", "games": [GAME]}, "x").digest


def test_models_of_a_suite_are_compared_and_stand_side_by_side(invoke, tmp_path):
    models = ("agent:optimal", "--vs", "agent:never", "--vs", "agent:random")
    results = figures(invoke, *models, "-o", f"{tmp_path}/out")
    alone = figures(invoke, "agent:never")
    never, at_random = results["comparisons"]
    assert (never["vs"], at_random["vs"]) == ("agent:never", "agent:random")
    assert never["figures"]["games"] == alone["games"]
    assert set(never["games"]) == {game["name"] for game in alone["games"]}
    reward = never["games"]["place"]["reward"]
    assert reward["first"] == 1.0 and reward["second"] == alone["games"][0]["score"]["value"]
    assert reward["interval"][0] > 0
    for folder in ("model", "vs", "vs-2"):
        assert len(list(read_rollouts(tmp_path / "out" / folder / "place"))) == 8
    stored = json.loads((tmp_path / "out/suite.json").read_text())
    assert stored["comparisons"] == results["comparisons"]
    shown = invoke("eval", *models, "--suite", "explore", "--episodes", "4").stdout
    assert "reward, agent:optimal against agent:never" in shown
    assert "agent:optimal is higher" in shown
    assert shown.partition("reward on explore 1")[2].split()[:3] == [
        "agent:optimal", "agent:never", "agent:random"
    ]  # fmt: skip


GAME = {"name": "small", "env": "Bandit", "episodes": 6}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--suite", "none"], "neither a file nor a suite; suites: explore"),
        (["--suite", "explore", "arms=3"], "leave out arms"),
        (["--suite", "explore", "--vs", "agent:nobody"], "no game of the suite explore has"),
        (
            ["--env", "Bandit", "--vs", "agent:never", "--vs", "agent:random"],
            "compared on a --suite",
        ),
    ],
)
def test_options_that_do_not_fit_a_suite_are_refused(invoke, tmp_path, monkeypatch, more, message):
    monkeypatch.chdir(tmp_path)
    result = invoke("eval", "agent:optimal", *more)
    assert result.exit_code == 2 and message in " ".join(result.stderr.split()), result.stderr
    assert "explore: place" not in result.stderr  # nothing was played


LATE = """\
games:
- {{name: first, env: Bandit, episodes: 2}}
- {{name: second, {second}}}
"""
THREE = "{random: [0, 0, 0], unexploring: [0, 0, 0], best: [1, 1, 1], without: never_informing}"


@pytest.mark.parametrize(
    ("second", "text"),
    [
        ("env: Mastermind, tasks: [{solution: 5}]", "second: task_data needs a 'solution'"),
        (
            f"env: Explore, episodes: 2, references: {THREE}",
            "second: the references are for 3 episodes, and a trial has 2",
        ),
        ("env: strangers_game.Env, episodes: 2", "env=strangers_game.Env"),
        (
            "env: ClassicalReasoning, env_config: {questions_file: /etc/passwd}, episodes: 2",
            "--trust",
        ),
    ],
)
def test_a_wrong_game_is_refused_before_any_is_played(invoke, tmp_path, monkeypatch, second, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strangers_game.py").write_text("open('imported', 'w').close()")
    (tmp_path / "late.yaml").write_text(LATE.format(second=second))
    result = invoke("eval", "agent:random", "--suite", "late.yaml", "-o", "out")
    assert result.exit_code == 2 and text in " ".join(result.stderr.split()), result.stderr
    assert not (tmp_path / "out").exists() and not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("error", "row"),
    [
        ("GenerationError: " + context_overflow(540, 512), "does not fit"),
        ("This model's maximum context length is 512 tokens. However, you", "does not fit"),
        ("RuntimeError: no such arm", "failed"),
    ],
)
def test_a_game_of_which_every_rollout_failed_says_why(capsys, error, row):
    failed = Rollout("0", 0, 0, "Bandit", {}, {"seed": 0}, (), (), seed=0, error=error)
    suite = parse_suite({"name": "s", "games": [GAME]}, "s.yaml")
    figures = suite_figures(suite, [Played(assess([failed]), (failed,))], complete=True)
    for table in suite_tables("agent:random", figures):
        out.print(table)
    output = " ".join(capsys.readouterr().out.split())
    assert f"small {row} " in output and "nan" not in output
    why = "longer than the model's context are small 1 of 1 rollouts"
    assert (why in output) == (row == "does not fit")


ROOM = """\
games:
- {name: place, env: Explore, episodes: 2, references:
   {random: [0, 0], unexploring: [0, 0], best: [1, 1], without: never_informing}}
- {name: lasting, env: Explore, env_config: {episodes_per_trial: 12, free_shots: 11}, episodes: 2}
"""


def test_a_model_plays_the_games_that_fit_in_its_context(invoke, tmp_path):
    """Without spoiling them by those that do not fit."""
    (tmp_path / "room.yaml").write_text(ROOM)
    command = ("eval", "builtin:quickstart", "--suite", str(tmp_path / "room.yaml"), "--json")
    result = invoke(*command)
    assert result.exit_code == 0, result.stderr
    place, lasting = json.loads(result.stdout)["games"]
    assert (place["too_long"], place["failures"]) == (0, 0) and place["of_best"] is not None
    assert lasting["too_long"] == lasting["failures"] == 2
