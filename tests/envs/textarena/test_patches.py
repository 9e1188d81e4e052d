"""What TextArena 0.7.4 gets wrong, shown on the bare game, and that ours does not."""

import random

import pytest

pytest.importorskip("textarena", reason="needs the extra textarena")

import textarena as ta

from agentsgym import ScriptedAgent
from agentsgym.envs import make
from agentsgym.envs.textarena.play import last_move


def bare(env_id, seed=0):
    random.seed(seed)
    env = ta.make(env_id)
    env.reset(num_players=1, seed=seed)
    return env


def played(name, actions, seed=0, **config):
    env = make(f"TextArena/{name}", None, config)
    batch = env.run_trial([{"seed": seed}], ScriptedAgent(actions))
    assert batch.rollouts[0].error is None, batch.rollouts[0].error
    return batch["final_rewards"][0], batch.rollouts[0].episodes[0]


@pytest.mark.parametrize("name", ["Countdown", "Cryptarithm", "Slitherlink", "ThreeCardMonte"])
def test_rewards_that_are_sentences_become_numbers(name):
    game = bare(f"{name}-v0-raw")
    game.step("nonsense")
    game.step("nonsense")
    assert isinstance(game.state.rewards[0], str)
    reward, episode = played(name, ["nonsense"])
    assert isinstance(reward, float) and 0 <= reward <= 1
    assert isinstance(episode.steps[-1].info["message"], str)
    assert "Reason: Bad" in episode.messages[-2]["content"] or name == "Countdown"


def test_2048_takes_a_sentence_for_a_move():
    before = bare("2048-v0-raw")
    board = [row[:] for row in before.state.game_state["board"]]
    before.step("[What's your move?]")
    assert before.state.game_state["board"] != board
    actions = ["What's your move?", "[not up]", "[Up, or left]", "[it's a d]"]
    _, episode = played("2048", [*actions, "[move Up]", "down", "[W]"], error_allowance=9,
                        max_steps_per_episode=7)  # fmt: skip
    refused = [step.info.get("message") or step.malformed for step in episode.steps]
    assert all(step.malformed for step in episode.steps[:4]), refused
    assert not any(step.malformed for step in episode.steps[4:]), refused


def test_solving_fifteen_crashes_the_bare_game():
    nearly = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, None, 15]]
    game = bare("FifteenPuzzle-v0-raw")
    game.board = [row[:] for row in nearly]
    with pytest.raises(AttributeError, match="set_winners"):
        game.step("[left]")
    env = make("TextArena/FifteenPuzzle")
    state = env._initialize_episode("s", {"seed": 0})
    state.raw.board = [row[:] for row in nearly]
    _, reward, done, info = env._step_episode("s", state, "[left]")
    assert (reward, done, info["win"], info["stop_reason"]) == (1.0, True, True, "win")


def test_fifteen_puzzles_of_the_datasets_can_be_solved():
    env = make("TextArena/FifteenPuzzle", None, {"train_tasks": 40})
    seeds = [row["task_data"]["seed"] for row in env.get_train_dataset()]
    assert seeds != list(range(40))
    assert 60 < seeds[-1] < 110


def test_the_same_card_three_times_is_no_set():
    game = bare("Set-v0-raw")
    game.step("[1, 1, 1]")
    assert game.state.game_state["score"] == 1
    reward, episode = played("Set", ["[1, 1, 1]"])
    assert reward == 0.0 and episode.stop_reason == "malformed"


def test_a_disk_that_stays_on_its_tower_is_no_move():
    game = bare("TowerOfHanoi-v0-raw")
    game.step("[A A]")
    assert game.state.error_count == 0
    _, episode = played("TowerOfHanoi", ["[A A]", "[AB]"], max_steps_per_episode=2)
    assert [step.malformed for step in episode.steps] == [True, False]


def test_bandit_pays_the_worst_button_best_and_ours_the_best():
    def paid(choose):
        game = bare("Bandit-v0-raw")
        truth = game.state.game_state["ground_truth"]
        button = choose(truth, key=truth.get)
        for _ in range(21):
            done, _ = game.step(f"[{button}]")
        assert done
        return button, game.state.rewards[0]

    best, best_paid = paid(max)
    worst, worst_paid = paid(min)
    assert best_paid == 0 < worst_paid
    reward, episode = played("Bandit", [f"[{best}]"])
    assert reward == 1.0 and episode.win
    reward, episode = played("Bandit", [f"[{worst}]"])
    assert reward == pytest.approx(-worst_paid) and not episode.win


def test_what_the_player_says_is_not_heard_as_the_game():
    """The bare Countdown logs an action as the kind of a message whose text is 0."""
    _, episode = played("Countdown", ["[GAME] you won", "[0 1 +]", "[0 1 +]"])
    observations = [m["content"] for m in episode.messages if m["role"] == "user"]
    assert all("you won" not in text for text in observations[:2])
    assert all(text.strip() != "0" for text in observations)


def test_printing_games_print_nothing(capsys):
    played("LogicPuzzle", ["[a b X]"])
    played("RushHour", ["[X+]"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "move"),
    [
        ("[up]", "[up]"),
        ("I go [up], no, [down]", "[down]"),
        ("<think>[left] or [right]?</think> [up]", "[up]"),
        ("", ""),
        ("[²]", ""),
        (f"[{'9' * 70}]", ""),
        ("[1]" * 2000, ""),
        ("[a\nb]", ""),
    ],
)
def test_the_last_bracket_is_the_move(text, move):
    assert last_move(text) == move
