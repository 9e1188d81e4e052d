"""Wordle with a free list of words."""

import re
from functools import cached_property

from pydantic import Field

from agentsgym.envs.action_text import read_action
from agentsgym.envs.code_game import CodeGame, CodeState
from agentsgym.envs.known_game import episode_weights
from agentsgym.envs.wordle.best_play import EntropyPlayer
from agentsgym.envs.wordle.words import LENGTH, all_words

_LETTERS = re.compile(r"[^\W\d_]+")


class WordleEnv(CodeGame):
    """Find a word of five letters. Each guess, a word of the list, gets a mark for each letter.

    `task_data` is `{"solution": "crane", "seed": int}`; opening hints, if there are any, are drawn
    from the seed. The right guess earns 1.0 and ends the episode. In a trial the word stays the
    same.
    """

    class Settings(CodeGame.Settings):
        """The settings of Wordle."""

        max_steps_per_episode: int = Field(6, description="guesses per episode")
        hints: int = Field(0, ge=0, le=100, description="opening hints in the first prompt")

    config: Settings
    what = "word"
    reflect = "Note what you know about the word."
    refusal = "That is not in the list of words."
    form = "Answer with one word only."
    solution_form = "from the list of words"

    def _set_up(self) -> None:
        self.words = all_words()
        self.play_in(self.words)

    def rules(self, state: CodeState) -> str:
        """What is to be found, and what the marks mean."""
        guesses = self.config.max_steps_per_episode
        return (
            f"Find the common English word of {LENGTH} letters. {guesses} guesses. After a guess, "
            "each of its letters has a mark: G if it is in its place, Y if it belongs to another "
            "place, X if the word has no more of it."
        )

    def read_code(self, text: str) -> str | None:
        """The word that is the whole text; None without one."""
        word = text.strip().casefold()
        return word if word in self.words.index else None

    def read_guess(self, action: str) -> str | None:
        """The one word of the list in an agent's text; None without one."""
        return read_action(action, self.read_code, self._names_any)

    def _names_any(self, text: str) -> bool:
        return any(word in self.words.index for word in _LETTERS.findall(text.casefold()))

    def say_code(self, code: str) -> str:
        """The word."""
        return code

    def say_answer(self, answer: str) -> str:
        """The marks, apart from each other."""
        return " ".join(answer)

    @cached_property
    def best_play(self) -> EntropyPlayer:
        """The strong player of the configured trial."""
        weights = episode_weights(*self.played_as_one)
        return EntropyPlayer(self.words, self.config.max_steps_per_episode, weights)
