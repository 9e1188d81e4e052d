"""Our Twenty Questions beside TextArena's with an injected answerer: where they agree, and the
faults of theirs that ours does not have."""

import random

import pytest

pytest.importorskip("textarena", reason="needs the extra textarena")

from textarena.envs.TwentyQuestions.env import TwentyQuestionsEnv as Theirs

from agentsgym import ScriptedAgent, TwentyQuestionsEnv
from agentsgym.envs.twenty_questions import load_table
from agentsgym.envs.twenty_questions.answerer import TableAnswerer


class Offline(Theirs):
    """TextArena's game with any callable as its gamemaster, and a word of our choosing."""

    def __init__(self, gamemaster, word, max_turns=21):
        self.hardcore, self.max_turns = False, max_turns
        self.gamemaster = gamemaster
        self.gamemaster_options = ["Yes", "No", "I don't know"]
        self.gamemaster_context, self.gamemaster_history = None, []
        self.word_list = {"things": [word]}


def theirs(word, actions, max_turns=21):
    """Reward of TextArena's game (None where it is not over), its answers, and steps taken."""
    answerer = TableAnswerer(load_table("default"))

    def gamemaster(prompt):
        question = prompt.rpartition("Q: ")[2].partition("\nOptions:")[0]
        return answerer.answer(word, question, []).text

    state = random.getstate()
    game = Offline(gamemaster, word, max_turns)
    game.reset(num_players=1, seed=0)
    random.setstate(state)
    done, steps = False, 0
    while not done and steps < len(actions):
        done, _ = game.step(actions[steps])
        steps += 1
    answers = [answer for _, answer in game.state.game_state.get("history", [])]
    return (game.state.rewards or {}).get(0), answers, steps


def ours(word, actions, **config):
    env = TwentyQuestionsEnv(None, config)
    batch = env.run_trial([{"solution": word, "seed": 0}], ScriptedAgent(actions))
    episode = batch.rollouts[0].episodes[0]
    answers = [step.info["answer"] for step in episode.steps if "answer" in step.info]
    return batch["final_rewards"][0], answers, len(episode.steps)


@pytest.mark.parametrize("word", ["dog", "apple", "chair", "horse"])
def test_the_same_questions_get_the_same_answers_and_rewards(word):
    questions = ["Is it an animal?", "Can it fly?", "Is it alive?", "Is it made of metal?"]
    for guess in (f"[{word}]", f"[{word.upper()}]", "[zebra crossing]"):
        their_reward, their_answers, their_steps = theirs(word, [*questions, guess])
        our_reward, our_answers, our_steps = ours(word, [*questions, guess])
        assert our_answers == their_answers and our_steps == their_steps
        assert our_reward == their_reward


def test_a_list_of_words_wins_theirs_and_not_ours():
    guess = "[apple dog chair horse]"
    assert theirs("dog", [guess])[0] == 1
    assert ours("dog", [guess])[0] == 0.0
