"""The figures of a suite, by hand."""

import math
from dataclasses import replace

import pytest

from agentsgym.envs import ConfigError
from agentsgym.evaluation import Played, assess, parse_suite, suite_figures
from agentsgym.evaluation.exploration import MeanWithInterval, mean_estimate
from agentsgym.types import Episode, Rollout, Step
from agentsgym.types.requests import context_overflow

REFERENCES = {
    "random": [0.1, 0.1],
    "unexploring": [0.2, 0.4],
    "best": [0.0, 0.9],
    "without": "never_informing",
}
GAMES = [
    {"name": "one", "env": "Explore", "seeds": [1, 2, 3, 4], "references": REFERENCES},
    {
        "name": "two",
        "env": "Bandit",
        "seeds": [1, 2, 3, 4],
        "references": REFERENCES | {"without": "scored_alone"},
    },
]


def suite(*games, **more):
    return parse_suite({"name": "s", "games": list(games) or GAMES, **more}, "s.yaml")


def played(scores, informing=(True, False)):
    rollouts = []
    for task, score in enumerate(scores):
        episodes = tuple(
            Episode(k, (Step(0, "", "", r, True, {"informing": mark}),), r, float(k), "done")
            for k, (r, mark) in enumerate(zip((0.0, score), informing, strict=True))
        )
        rollouts.append(
            Rollout(f"{task}", task, 0, "Explore", {}, {"seed": task}, episodes, (), seed=0)
        )
    return Played(assess(rollouts), tuple(rollouts))


def test_a_game_lies_between_random_and_best_play():
    figures = suite_figures(suite(), [played([0.9, 0.9, 0.4, 0.4]), None], complete=True)
    [game] = figures.games
    assert game.score.value == pytest.approx(0.65)
    # (0.65 - 0.1) / 0.8 and (0.65 - 0.4) / 0.5: only the scored episode counts
    assert game.of_best.value == pytest.approx(0.6875)
    assert game.information.value == pytest.approx(0.5)
    half = 3.18245 * math.sqrt(0.25**2 / 3)
    assert game.score.ci95 == pytest.approx((0.65 - half, 0.65 + half), abs=1e-4)
    assert game.information.ci95 == pytest.approx((0.5 - 2 * half, 0.5 + 2 * half), abs=1e-4)
    free, scored = game.episodes
    assert (free.scored, free.informing, free.best) == (False, 1.0, 0.0)
    assert (scored.scored, scored.informing, scored.best) == (True, 0.0, 0.9)


def test_the_mean_is_over_games_in_which_only_exploring_informs():
    both = [played([0.9] * 4), played([0.4] * 4)]
    figures = suite_figures(suite(), both, complete=True)
    assert figures.information.value == pytest.approx(1.0) and figures.complete
    assert figures.games[1].information.value == pytest.approx(0.0)
    assert suite_figures(suite(), [None, both[1]], complete=True).information is None
    assert not suite_figures(suite(), [both[0], None], complete=True).complete


def test_a_game_that_did_not_always_fit_has_no_scaled_figures():
    """What fits is a choice by how the games went."""
    one = played([0.9] * 4)
    long = replace(one.rollouts[0], error=context_overflow(540, 512), episodes=())
    left = Played(one.evaluation, (long, *one.rollouts[1:]))
    figures = suite_figures(suite(), [left, played([0.4] * 4)], complete=True)
    game, other = figures.games
    assert game.too_long == 1 and game.score.value == pytest.approx(0.9)
    assert game.of_best is None and game.information is None and figures.information is None
    assert other.of_best is not None


def test_equal_rewards_are_not_certain_to_the_last_digit():
    best = suite_figures(suite(), [played([0.9] * 4), None], complete=True).games[0]
    unseen = 3.841459 / (4 + 3.841459)
    assert best.score.ci95 == pytest.approx((0.9 - 0.9 * unseen, 0.9 + 0.1 * unseen), abs=1e-6)


def test_the_mean_of_estimates_by_hand():
    mean = mean_estimate([MeanWithInterval(1.0, (0.7, 1.1)), MeanWithInterval(0.0, (-0.4, 0.4))])
    assert mean.value == 0.5
    assert mean.ci95 == pytest.approx((0.5 - 0.25, 0.5 + math.hypot(0.1, 0.4) / 2))


def test_without_references_there_are_rewards_only():
    plain = suite({"name": "one", "env": "Explore", "episodes": 4})
    [game] = suite_figures(plain, [played([0.9, 0.4, 0.9, 0.4])], complete=True).games
    assert game.of_best is None and game.information is None and game.score.value == 0.65


def test_a_digest_is_of_what_is_played():
    digest = suite().digest
    assert suite(description="other words").digest == digest
    assert suite(version=2).digest != digest
    assert suite({**GAMES[0], "seeds": [1, 2, 3, 5]}, GAMES[1]).digest != digest
    assert suite({**GAMES[0], "env_config": {"noise": 0.1}}, GAMES[1]).digest != digest


@pytest.mark.parametrize(
    ("games", "message"),
    [
        ([], "games"),
        ([GAMES[0], GAMES[0]], "two games have the same name"),
        ([{"name": "one", "env": "Bandit"}], "give either tasks, or seeds, or episodes"),
        ([{**GAMES[0], "name": "../up"}], "games.0.name"),
        ([{**GAMES[0], "sedes": 1}], "games.0.sedes"),
    ],
)
def test_a_wrong_suite_is_refused_with_its_key(games, message):
    with pytest.raises(ConfigError, match=message):
        parse_suite({"name": "s", "games": games}, "s.yaml")
