"""Mastermind: its players as numbers, by hand and by other means; rewards, metrics, tasks."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsgym import ScriptedAgent
from agentsgym.envs.known_game import episode_weights
from agentsgym.envs.mastermind import ExactPlayer, Feedback, MastermindEnv, PegCodes
from expectations import guessed, guessed_with_hint

feedback = PegCodes.feedback
codes = st.integers(1, 4).flatmap(
    lambda length: st.tuples(*[st.tuples(*[st.integers(0, 4)] * length)] * 2)
)


@pytest.mark.parametrize(
    ("guess", "code", "place", "color"),
    [
        ((0, 1), (0, 1), 2, 0),
        ((0, 1), (1, 0), 0, 2),
        ((0, 0, 1), (1, 0, 0), 1, 2),
        ((0, 0, 1, 2), (3, 0, 0, 0), 1, 1),
    ],
)
def test_feedback_by_hand(guess, code, place, color):
    assert feedback(guess, code) == Feedback(place, color)


@given(codes)
def test_feedback_is_symmetric_and_bounded(pair):
    guess, code = pair
    answer = feedback(guess, code)
    assert answer == feedback(code, guess)
    assert 0 <= answer.place + answer.color <= len(code)
    assert (answer.place == len(code)) == (guess == code)
    assert answer != Feedback(len(code) - 1, 1)


@pytest.mark.parametrize(("colors", "length"), [(2, 2), (3, 2), (4, 2), (2, 4), (3, 3)])
def test_parts_are_what_feedback_says(colors, length):
    space = PegCodes(colors, length)
    for guess, parts in ((g, space.parts(g)) for g in range(len(space))):
        assert sum(parts.values()) == space.everything
        for i, code in enumerate(space.codes):
            assert parts[feedback(space.codes[guess], code)] >> i & 1


def player_of(size, steps, *trial):
    return ExactPlayer(PegCodes(*size), steps, episode_weights(*trial))


def values(colors, length, *trial):
    player = player_of((colors, length), *trial)
    return guessed(player, player.space.everything)


def test_two_colors_two_pegs_by_hand():
    # Guess 00: 00 is right, 11 is told apart, 01 and 10 are not.
    one = values(2, 2, 1)
    assert one.wins == (1 / 4,)
    one = values(2, 2, 2)
    assert one.wins == (3 / 4,) and one.guesses == (7 / 4,)
    one = values(2, 2, 3)
    assert one.score == 1.0 and one.guesses == ((1 + 2 + 2 + 3) / 4,)


def test_two_colors_two_pegs_after_a_hint_by_hand():
    # The hint 00 leaves 01 and 10 (2/3 of its codes) or 11 (1/3); the hint 01 leaves 10 (1/3) or
    # 00 and 11 (2/3).
    for steps, wins, guesses in ((1, 2 / 3, 1.0), (2, 1.0, 4 / 3)):
        one = guessed_with_hint(player_of((2, 2), steps))
        assert one.wins == pytest.approx((wins,)) and one.guesses == pytest.approx((guesses,))


def test_a_free_shot_by_hand():
    # One free guess: of 4 codes, 3 are then named at once. Two free guesses tell all 4 apart.
    one = values(2, 2, 1, 2, 1)
    assert one.score == 3 / 4 and one.wins == (1 / 4, 3 / 4)
    one = values(2, 2, 2, 2, 1)
    assert one.score == 1.0 and one.guesses[1] == 1.0
    # Both scored: the mean of 1/4 and 3/4.
    one = values(2, 2, 1, 2, 0)
    assert one.score == 1 / 2


def test_fewest_guesses_on_average():
    """Fewest guesses on average: 45/16 for 4 colors on 2 pegs, 206/64 for 4 on 3."""
    assert values(4, 2, 6).guesses == (45 / 16,)
    assert values(4, 3, 6).guesses == (206 / 64,)


def brute_force(space, steps, weights):
    """The best score by plain search over all guesses and all candidate sets."""

    @functools.cache
    def value(known: frozenset[int], episode: int, left: int) -> float:
        if episode == len(weights):
            return 0.0
        return max(after(known, guess, episode, left) for guess in range(len(space)))

    def after(known: frozenset[int], guess: int, episode: int, left: int) -> float:
        weight, total = weights[episode], 0.0
        for answer in {feedback(space.codes[guess], space.codes[i]) for i in known}:
            part = frozenset(
                i for i in known if feedback(space.codes[guess], space.codes[i]) == answer
            )
            won = answer.place == space.length
            total += weight * won
            over = won or left == 1
            total += value(part, episode + over, steps if over else left - 1)
        return total

    return value(frozenset(range(len(space))), 0, steps) / len(space)


@pytest.mark.parametrize(
    ("size", "trial"),
    [
        ((2, 2), (2, 1, 0)),
        ((3, 2), (3, 1, 0)),
        ((3, 2), (2, 2, 0)),
        ((3, 2), (1, 3, 1)),
        ((2, 3), (2, 2, 1)),
    ],
)
def test_exact_play_against_plain_search(size, trial):
    player = player_of(size, *trial)
    best = brute_force(player.space, player.steps, player.weights)
    assert guessed(player, player.space.everything).score == pytest.approx(best)


# -- the environment -----------------------------------------------------------------------------


BARE = {"hints": 0}


def make(**config):
    return MastermindEnv(None, config)


def play(env, task, agent):
    rollout = env.run_trial([task], agent).rollouts[0]
    assert rollout.error is None
    return rollout


def test_the_right_guess_is_paid_and_ends_the_episode():
    script = ScriptedAgent(["Blue, red.", "red blue"])
    episode = play(make(), {"solution": "red blue", "seed": 1}, script).episodes[0]
    assert episode.messages[2]["content"] == "0 right place, 2 right colour."
    assert [step.reward for step in episode.steps] == [0.0, 1.0]
    assert episode.stop_reason == "win" and episode.win is True


def test_limits_and_malformed_actions():
    env = make(error_allowance=3, **BARE)
    script = ScriptedAgent(["red", "red pink", "<think>?</think>red red"])
    episode = play(env, {"solution": "blue blue"}, script).episodes[0]
    assert [step.malformed for step in episode.steps] == [True, True, False]
    assert episode.steps[1].observation == "That is no code."
    assert (episode.stop_reason, episode.win, episode.reward) == ("guesses_used", False, 0.0)


def test_metrics_say_what_a_guess_brought():
    env = make(**BARE)
    script = ScriptedAgent(["red green", "red green", "blue red"])
    episode = play(env, {"solution": "blue red"}, script).episodes[0]
    metrics = [step.info["metrics"] for step in episode.steps]
    # "red green" leaves 4 of 16: blue red, yellow red, green blue, green yellow.
    assert [one["bits"] for one in metrics] == pytest.approx([2.0, 0.0, 2.0])
    assert [one["consistent"] for one in metrics] == [1.0, 0.0, 1.0]
    assert [step.info["informing"] for step in episode.steps] == [True, False, True]


def test_information_is_paid_by_the_bit_if_the_settings_say_so():
    env = make(information_reward=0.5, **BARE)
    assert env.reward_range == (0.0, 1.0 + 0.5 * 4)
    script = ScriptedAgent(["red green", "red green", "blue red"])
    episode = play(env, {"solution": "blue red"}, script).episodes[0]
    # "red green" leaves 4 of 16 codes, again nothing, and the right guess 1 of 4.
    assert [step.reward for step in episode.steps] == pytest.approx([1.0, 0.0, 2.0])


def test_hints_split_shares_codes_and_no_task():
    env = make()
    train, held_out = env.get_train_dataset(), env.get_eval_dataset()
    assert (len(train), len(held_out)) == (16 * 12, 16 * 3)

    def with_hints(dataset):
        return {(r["task_data"]["solution"], env.start(r["task_data"])["hints"]) for r in dataset}

    assert len(with_hints(train)) == len(train) and len(with_hints(held_out)) == len(held_out)
    assert not with_hints(train) & with_hints(held_out)
    codes = [{task["solution"] for task in one["task_data"]} for one in (train, held_out)]
    assert codes[0] == codes[1]
