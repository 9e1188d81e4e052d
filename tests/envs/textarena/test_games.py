"""TextArena's games: the same games however they are played, and right rewards."""

import random

import pytest

pytest.importorskip("textarena", reason="needs the extra textarena")

import textarena as ta

from agentsgym import ScriptedAgent
from agentsgym.checks.playing import (
    agent_texts,
    play_in_turn,
    random_player,
    reward_of,
)
from agentsgym.envs import ConfigError, make
from agentsgym.envs.builtin import TEXTARENA_GAMES
from agentsgym.envs.textarena.games import GAMES

QUICK = [name for name in TEXTARENA_GAMES if name not in ("RushHour", "Sokoban", "Set")]


@pytest.mark.parametrize("name", TEXTARENA_GAMES)
def test_every_variant_can_be_played(name):
    for variant in GAMES[name].variants:
        if (name, variant) == ("Sokoban", "medium"):
            continue  # takes 15 seconds to deal
        env = make(f"TextArena/{name}", None, {"variant": variant})
        rollout = play_in_turn(env, [{"seed": 3}], random_player(0))[0]
        assert rollout.error is None and agent_texts(rollout)
        low, high = env.reward_range
        assert low <= reward_of(rollout) <= high


@pytest.mark.parametrize("name", QUICK)
def test_the_same_moves_give_the_same_game_as_textarena_itself(name):
    """The bare game, seeded before it is made, sees the same moves and pays the same."""
    env = make(f"TextArena/{name}", None, {"max_steps_per_episode": 60})
    for seed in (0, 7):
        rollout = play_in_turn(env, [{"seed": seed}], random_player(seed, nonsense=0.0))[0]
        random.seed(seed)
        bare = ta.make(env._env_id, **env._options)
        bare.reset(num_players=1, seed=seed)
        done = False
        for action in agent_texts(rollout):
            assert not done
            done, _ = _step(bare, action)
        if done and isinstance(bare.state.rewards[0], int | float):
            paid = float(bare.state.rewards[0])
            earned = reward_of(rollout)
            assert earned == pytest.approx(paid) or _corrected(name, paid, earned)


def _step(bare, action):
    try:
        return bare.step(action)
    except AttributeError:  # FifteenPuzzle, when it is solved
        return True, {}


def _corrected(name, paid, reward):
    """Bandit's regret counts against the player; LightsOut's progress is bounded below."""
    return (name == "Bandit" and reward == (-paid if paid else 1.0)) or (
        name == "LightsOut" and paid < -1 == reward
    )


def test_error_allowance_is_the_number_forgiven():
    for allowed in (0, 1, 3):
        env = make("TextArena/Mastermind", None, {"error_allowance": allowed})
        batch = env.run_trial([{"seed": 0}], ScriptedAgent(["no guess"]))
        episode = batch.rollouts[0].episodes[0]
        assert len(episode.steps) == allowed + 1
        assert episode.stop_reason == "malformed" and episode.steps[-1].malformed


def test_the_step_limit_cuts_and_pays_the_progress_made():
    env = make("TextArena/Sudoku", None, {"max_steps_per_episode": 2})
    state = env._initialize_episode("s", {"seed": 4})
    full, board = state.raw.full_grid, state.raw.state.game_state["board"]
    blanks = [(r, c) for r in range(9) for c in range(9) if not board[r][c]]
    moves = [f"[{r + 1} {c + 1} {full[r][c]}]" for r, c in blanks]
    batch = env.run_trial([{"seed": 4}], ScriptedAgent(moves))
    assert batch.rollouts[0].episodes[0].stop_reason == "max_steps"
    assert batch["final_rewards"] == [pytest.approx(2 / len(blanks))]
    whole = make("TextArena/Sudoku").run_trial([{"seed": 4}], ScriptedAgent(moves))
    assert whole["final_rewards"] == [1.0]
    assert whole.rollouts[0].episodes[0].stop_reason == "win"


def test_the_limit_is_told_to_the_game():
    env = make("TextArena/Mastermind", None, {"max_steps_per_episode": 7})
    assert "You have 7 turns" in env._format_prompt(env._initialize_episode("s", {"seed": 0}), 0)


def test_one_puzzle_games_say_so():
    for name, game in GAMES.items():
        env = make(f"TextArena/{name}", None, {"train_tasks": 5, "eval_tasks": 5})
        train, held_out = (
            [row["task_data"] for row in dataset]
            for dataset in (env.get_train_dataset(), env.get_eval_dataset())
        )
        if game.one_puzzle:
            assert env.one_puzzle and train == held_out == [{"seed": 0}]
        else:
            assert len(train) == len(held_out) == 5
            assert len({task["seed"] for task in [*train, *held_out]}) == 10


def test_countdown_draws_puzzles_when_asked_to():
    env = make("TextArena/Countdown", None, {"variant": "random", "train_tasks": 6})
    tasks = [row["task_data"] for row in env.get_train_dataset()]
    boards = {env._format_prompt(env._initialize_episode("s", task), 0) for task in tasks}
    assert len(boards) == 6


def test_unknown_variants_and_missing_seeds_are_refused():
    with pytest.raises(ConfigError, match="variant"):
        make("TextArena/Mastermind", None, {"variant": "gigantic"})
    with pytest.raises(ValueError, match="'seed'"):
        make("TextArena/Mastermind")._initialize_episode("s", {})


def test_a_game_that_ends_without_a_word_gives_no_answer_in_a_trial():
    env = make("TextArena/GuessTheNumber", env_config={"episodes_per_trial": 2, "carry": "full"})
    task = env.get_eval_dataset()[0]["task_data"]
    [rollout] = env.run_trial([task], ScriptedAgent(["?"])).rollouts
    assert rollout.episodes[0].stop_reason == "malformed"
    assert rollout.episodes[1].steps[0].observation.startswith("The episode is over.")


def told(env, *actions, seed=3):
    """The state after some actions, and whether each was malformed."""
    state, malformed = env._initialize_episode("s", {"seed": seed}), []
    for action in actions:
        state, _, _, info = env._step_episode("s", state, action)
        malformed.append(info["malformed"])
    return state, malformed


def test_a_number_that_was_guessed_is_not_listed_again():
    env = make("TextArena/GuessTheNumber")
    state, malformed = told(env, "[7]", "[7]")
    assert malformed == [False, True]
    numbers = [f"[{number}]" for number in range(1, 21)]
    assert env.admissible_actions(state) == [one for one in numbers if one != "[7]"]


def test_a_code_that_was_tried_is_not_listed_again():
    env = make("TextArena/Mastermind")
    state, _ = told(env, "[1 2 3 4]")
    listed = env.admissible_actions(state)
    assert "[1 2 3 4]" not in listed and len(listed) == 6 * 5 * 4 * 3 - 1


def test_more_moves_than_can_be_listed_are_none():
    env = make("TextArena/Mastermind", None, {"variant": "extreme"})
    state, _ = told(env)
    assert env.admissible_actions(state) is None and env.example_action(state)


@pytest.mark.parametrize(
    ("board", "ways"),
    [
        ([[2, 4, 2, 4], [0] * 4, [0] * 4, [0] * 4], ["[down]"]),
        (
            [[2, 2, 0, 0], [4, 0, 0, 0], [8, 0, 0, 0], [16, 0, 0, 0]],
            ["[down]", "[left]", "[right]"],
        ),
    ],
)
def test_2048_lists_the_ways_that_change_the_board(board, ways):
    env = make("TextArena/2048")
    state, _ = told(env)
    state.raw.state.game_state["board"] = board
    assert env.admissible_actions(state) == ways


def test_countdown_lists_what_gives_a_whole_number():
    env = make("TextArena/Countdown")
    state, _ = told(env)
    state.raw.numbers = [6, 3]
    assert env.admissible_actions(state) == [
        *["[0 1 +]", "[0 1 -]", "[0 1 *]", "[0 1 /]"],
        *["[1 0 +]", "[1 0 -]", "[1 0 *]"],
    ]


def test_a_wrong_guess_is_legal_where_no_player_could_know():
    env = make("TextArena/Sudoku", None, {"error_allowance": 5})
    state, _ = told(env, seed=4)
    (r, c) = next((r, c) for r in range(9) for c in range(9) if state.raw.full_grid[r][c] != 1
                  and not state.raw.state.game_state["board"][r][c])  # fmt: skip
    wrong = f"[{r + 1} {c + 1} 1]"
    assert wrong in env.admissible_actions(state)
    state, malformed = told(env, wrong, "[0 0 1]", seed=4)
    assert malformed == [False, True]
    assert state.raw.state.game_state["board"][r][c] == 0
