"""The players of a warm start side by side, by hand."""

import pytest

from agentsgym.agents import ScriptedAgent
from agentsgym.warm_start.players import (
    MORE_GAMES,
    Figures,
    figures,
    problem,
    scripted_players,
    side_by_side,
)
from helpers import CountdownEnv

TEACHER = Figures(legal=1.0, reward=0.5, error=0.03, games=128)


def test_figures_are_means_over_actions_and_games():
    """Two games: a bad action and then one for 1; two legal ones for 0 and 0. Three of four
    actions are legal, rewards 1 and 0, the error is half of a root of two."""
    tasks = [{"rewards": [0.0, 1.0]}, {"rewards": [0.0, 0.0]}]
    env = CountdownEnv()
    bad, good = (
        env.run_trial([task], ScriptedAgent(lines)).rollouts
        for task, lines in zip(tasks, (["bad", "[banana]"], ["[apple]", "[banana]"]), strict=True)
    )
    seen = figures([*bad, *good])
    assert (seen.legal, seen.reward, seen.games) == (0.75, 0.5, 2)
    assert seen.error == pytest.approx(0.5 / 2**0.5)


def test_the_best_constant_action_is_one_of_those_that_were_said():
    env = CountdownEnv()
    teacher = ScriptedAgent(["[apple]", "[banana]"])
    players = scripted_players(env, teacher, [{"rewards": [0.0, 1.0]}] * 3)
    assert list(players) == ["teacher", "constant"]  # it lists no actions for a random player
    assert players["constant"].action in ("[apple]", "[banana]")
    assert players["constant"].reward == players["teacher"].reward == 1.0


@pytest.mark.parametrize(
    ("legal", "reward", "says"),
    [
        (0.99, 0.45, None),
        (0.95, 0.5, "less legal than its teacher (95.0% of its actions"),
        (1.0, 0.40, "earns less than what it imitates (0.400"),
    ],
)
def test_an_imitator_far_below_its_teacher_is_named_with_what_to_try(legal, reward, says):
    """0.45 is 1.2 standard errors of a difference below 0.5, and 0.40 is 2.4."""
    found = problem({"teacher": TEACHER, "imitator": Figures(legal, reward, 0.03, 128)})
    assert found is None if says is None else says in found and "warm_start.steps" in found


def test_what_is_advised_was_not_done_before():
    players = {"teacher": TEACHER, "imitator": Figures(0.9, 0.5, 0.03, 128)}
    assert "warm_start.tokenizer=phrases" in problem(players)
    found = problem(players, "more time (warm_start.max_seconds)", copies=True)
    assert found.endswith("give it more time (warm_start.max_seconds)")


@pytest.mark.parametrize("legal", [0.9, 1.0])
def test_a_pretrained_model_is_not_advised_to_have_another_shape(legal):
    players = {"teacher": TEACHER, "imitator": Figures(legal, 0.4, 0.03, 128)}
    found = problem(players, MORE_GAMES, new=False)
    assert "more games (warm_start.games)" in found
    assert "warm_start.model" not in found and "warm_start.tokenizer" not in found


def test_all_stand_on_one_line():
    players = {"teacher": TEACHER, "constant": Figures(1.0, 0.2, 0.01, 128, "[apple]")}
    assert side_by_side(players) == (
        "reward and legal actions in 128 games: teacher 0.500 ± 0.030, 100.0% legal; "
        "constant 0.200 ± 0.010, 100.0% legal ('[apple]')"
    )
