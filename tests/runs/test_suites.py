"""`agentsgym eval --suite`."""

import json
from dataclasses import replace

import pytest

from agentsgym import make
from agentsgym.cli.console import out
from agentsgym.cli.suite import GameFigures, suite_table
from agentsgym.envs import ConfigError
from agentsgym.evaluation import UNINFORMED, assess, information
from agentsgym.runs import parse_config
from agentsgym.runs.files import read_rollouts
from agentsgym.runs.suites import load_suite, place_of, requests_of, suites
from of_rows import episode_of, rollout_of, step_of

FROZEN = {"explore": "e0eb91094dc5a336"}
EXPLORES = ["place", "place-noisy", "place-two-facts", "place-costly", "switches", "rule"]


def test_suites_are_frozen():
    assert {name: load_suite(name).digest for name in suites()} == FROZEN


def test_no_task_is_in_a_dataset_of_its_environment():
    for game in load_suite("explore").games:
        env = make(game.env, env_config=game.env_config)
        if game.env in ("Explore", "Bandit"):
            seeds = {task["seed"] for task in game.listed_tasks}
            for rows in (env.get_train_dataset(), env.get_eval_dataset()):
                assert not seeds & {task["seed"] for task in rows["task_data"]}


def figures(invoke, *arguments):
    result = invoke("eval", *arguments, "--suite", "explore", "--tasks", "8", "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_best_player_earns_what_is_known_and_the_same_again(invoke, tmp_path):
    results = figures(invoke, "agent:optimal", "-o", str(tmp_path))
    assert results["digest"] == FROZEN["explore"]
    games = results["games"]
    shares = {name: games[name]["information"]["share"] for name in EXPLORES}
    exact = ("place", "place-two-facts", "switches", "rule")
    assert [shares[name] for name in exact] == pytest.approx([1.0] * 4)
    assert games["bandit"]["information"] is None
    again = figures(invoke, "agent:optimal", "-o", str(tmp_path))
    assert again == results
    assert len(list(read_rollouts(tmp_path / "place"))) == 8
    stored = json.loads((tmp_path / "suite.json").read_text())
    assert stored.pop("schema") == 2 and stored == results


def test_the_best_player_that_never_explores_plays_the_games_that_have_one(invoke):
    """In each of the first eight tasks of `place` another box is right: one is found at once, and
    one after its miss, 0.25 as expected."""
    games = figures(invoke, "agent:never")["games"]
    assert list(games) == EXPLORES
    assert games["place"]["other_references"] == {UNINFORMED: pytest.approx(0.25)}
    assert games["place"]["evaluation"]["reward"] == pytest.approx(0.25)
    assert games["place"]["information"]["share"] == pytest.approx(0.0)
    assert all(game["evaluation"]["metrics"]["informing"] == 0 for game in games.values())


def played(rewards, failed=0):
    """Rollouts of tasks of their own."""
    one = [
        rollout_of(
            [episode_of(step_of(reward=reward, done=True))],
            group=k,
            env="Explore",
            task={"seed": k},
        )
        for k, reward in enumerate(rewards)
    ]
    return [replace(r, error="boom") if k < failed else r for k, r in enumerate(one)]


def test_information_lies_between_play_without_exploring_and_the_best():
    evaluation = assess(played([0.9, 0.9, 0.4, 0.4]), [0.9] * 4)
    known = information(evaluation, {UNINFORMED: 0.4, "another": 0.5})
    assert known.share == pytest.approx((0.65 - 0.4) / 0.5)
    low, high = evaluation.reward_ci95
    assert known.ci95 == pytest.approx(((low - 0.4) / 0.5, (high - 0.4) / 0.5))


@pytest.mark.parametrize(
    ("references", "best", "failed"),
    [({}, 0.9, 0), ({UNINFORMED: 0.4}, None, 0), ({UNINFORMED: 0.9}, 0.9, 0),
     ({UNINFORMED: 0.4}, 0.9, 1)],
)  # fmt: skip
def test_information_is_unknown(references, best, failed):
    """Without either play, where exploring is worth nothing, or where the rollouts that are left
    are a choice by how they went."""
    rollouts = played([0.9, 0.9, 0.4, 0.4], failed)
    assert information(assess(rollouts, [best] * 4), references) is None


def test_the_noise_of_a_game_is_its_own():
    run = parse_config({"env": "Explore", "model": "agent:random"})
    requests = [requests_of(g, place_of(g, run), 0) for g in load_suite("explore").games[:2]]
    assert not {r.seed for r in requests[0]} & {r.seed for r in requests[1]}
    first = load_suite("explore").games[0]
    assert requests_of(first, place_of(first, run), 0, most_tasks=5) == requests[0][:5]


FILE = """\
games:
- {name: small, env: Bandit, env_config: {arms: 2}, tasks: 6}
- {name: codes, env: Mastermind, tasks: [{solution: red blue}, {solution: red red}],
   rollouts_per_task: 3}
"""


def test_a_suite_of_ones_own(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(FILE)
    result = invoke("eval", "agent:random", "--suite", "mine.yaml", "-o", "out")
    assert result.exit_code == 0, result.stderr
    assert "agent:random on mine" in result.stdout and "codes" in result.stdout
    assert [len(list(read_rollouts(f"out/{name}"))) for name in ("small", "codes")] == [6, 6]


def test_a_digest_is_of_what_is_played(tmp_path):
    def digest(text):
        (tmp_path / "mine.yaml").write_text(text)
        return load_suite(str(tmp_path / "mine.yaml")).digest

    assert digest(FILE) == digest(f"description: words\n{FILE}")
    assert len({digest(FILE), digest(FILE.replace("6", "7")), digest(FILE.replace("2", "3"))}) == 3


@pytest.mark.parametrize(
    ("games", "message"),
    [
        ("[]", "games"),
        ("[{name: a, env: Bandit, tasks: 1}, {name: a, env: Bandit, tasks: 1}]", "the same name"),
        ("[{name: a, env: Bandit}]", "give either tasks"),
        ("[{name: a, env: Bandit, tasks: 2, seeds: [1]}]", "give either tasks"),
        ("[{name: ../up, env: Bandit, tasks: 2}]", "games.0.name"),
        ("[{name: a, env: Bandit, sedes: [1]}]", "games.0.sedes"),
    ],
)
def test_a_wrong_suite_is_refused_with_its_key(tmp_path, games, message):
    (tmp_path / "wrong.yaml").write_text(f"games: {games}\n")
    with pytest.raises(ConfigError, match=message):
        load_suite(str(tmp_path / "wrong.yaml"))


def test_models_of_a_suite_are_compared(invoke, tmp_path):
    models = ("agent:optimal", "--vs", "agent:never", "--vs", "agent:random")
    results = figures(invoke, *models, "-o", f"{tmp_path}/out")
    never, at_random = results["comparisons"].values()
    assert list(results["comparisons"]) == ["agent:never", "agent:random"]
    assert list(never) == EXPLORES and len(at_random) == 8  # nobody draws in Twenty Questions
    reward = never["place"]["reward"]
    assert (reward["first"], reward["second"]) == pytest.approx((1.0, 0.25))
    assert reward["interval"][0] > 0
    for folder in ("model", "vs", "vs-2"):
        assert len(list(read_rollouts(tmp_path / "out" / folder / "place"))) == 8
    stored = json.loads((tmp_path / "out/suite.json").read_text())
    assert stored["comparisons"] == results["comparisons"]
    shown = invoke("eval", *models, "--suite", "explore", "--tasks", "4").stdout
    assert "reward, agent:optimal against agent:never" in shown
    assert "agent:optimal is higher" in shown


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--suite", "none"], "neither a file nor a suite; suites: explore"),
        (["--suite", "explore", "env_config.arms=3"], "leave out env_config.arms"),
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
- {{name: first, env: Bandit, tasks: 2}}
- {{name: second, {second}}}
"""


@pytest.mark.parametrize(
    ("second", "text"),
    [
        ("env: Mastermind, tasks: [{solution: 5}]", "second: task_data needs a 'solution'"),
        ("env: strangers_game.Env, tasks: 2", "env=strangers_game.Env"),
        (
            "env: ClassicalReasoning, env_config: {questions_file: /etc/passwd}, tasks: 2",
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


def test_a_game_of_which_every_rollout_failed_says_so(capsys):
    figures = {"small": GameFigures(assess(played([0.0], failed=1)), {}, None)}
    out.print(suite_table("agent:random on s", figures))
    output = " ".join(capsys.readouterr().out.split())
    assert "small failed" in output and "nan" not in output
    assert "do not count: small 1 of 1" in output


ROOM = """\
games:
- {name: place, env: Explore, tasks: 2}
- {name: lasting, env: Explore, env_config: {episodes_per_trial: 12, free_shots: 11}, tasks: 2}
"""


def test_a_model_plays_the_games_that_fit_in_its_context(invoke, tmp_path):
    """Without spoiling them by those that do not fit."""
    (tmp_path / "room.yaml").write_text(ROOM)
    command = ("eval", "builtin:quickstart", "--suite", str(tmp_path / "room.yaml"), "--json")
    result = invoke(*command)
    assert result.exit_code == 0, result.stderr
    games = json.loads(result.stdout)["games"]
    assert games["place"]["evaluation"]["failures"] == 0 and games["place"]["information"]
    assert games["lasting"]["evaluation"]["failures"] == 2
    assert games["lasting"]["information"] is None
