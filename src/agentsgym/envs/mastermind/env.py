"""Mastermind in words."""

from functools import cached_property

from pydantic import Field

from agentsgym.envs.code_game import CodeGame, CodeState
from agentsgym.envs.known_game import episode_weights
from agentsgym.envs.mastermind.best_play import ExactPlayer
from agentsgym.envs.mastermind.codes import (
    COLORS,
    Code,
    Feedback,
    PegCodes,
    read_code,
    read_guess,
    say_code,
    say_feedback,
)
from agentsgym.types.names import ConfigError

MAX_CODES = 1296


class MastermindEnv(CodeGame):
    """Find a code of colored pegs. Each guess gets the number of right and of misplaced pegs.

    `task_data` is `{"solution": "red blue", "seed": int}`; the opening hints are drawn from the
    seed. The right guess earns 1.0 and ends the episode. In a trial the code and the hints stay the
    same.
    """

    class Settings(CodeGame.Settings):
        """The settings of Mastermind."""

        max_steps_per_episode: int = Field(3, description="guesses per episode")
        colors: int = Field(4, ge=2, le=len(COLORS), description="number of colors")
        length: int = Field(2, ge=1, le=10, description="pegs of a code")

    config: Settings
    reflect = "Note what you know about the code."
    refusal = "That is no code."

    def _set_up(self) -> None:
        config = self.config
        if config.colors**config.length > MAX_CODES:
            raise ConfigError(
                f"{self.name}: env_config.length gives more than {MAX_CODES} codes, got "
                f"{config.length}"
            )
        self.color_names = COLORS[: config.colors]
        self.solution_form = f"of {config.length} words out of {', '.join(self.color_names)}"
        self.pegs = PegCodes(config.colors, config.length)
        self.play_in(self.pegs)
        # It does not say "code": small models then write a program.
        self.form = f"Answer with {config.length} color{'s' if config.length > 1 else ''} only."

    def rules(self, state: CodeState) -> str:
        """The colors and the number of guesses."""
        names, explained = self.color_names, self.config.explain_actions
        rules = f"Find the code: {self.config.length} of {', '.join(names)}, repeats allowed. "
        rules += "" if explained else f'Guess like "{self.example_action(state)}". '
        return f"{rules}{self.config.max_steps_per_episode} guesses."

    def read_code(self, text: str) -> Code | None:
        """The code that is the whole text; None without one."""
        return read_code(text, self.color_names, self.config.length)

    def read_guess(self, action: str) -> Code | None:
        """The one code in an agent's text; None without one."""
        return read_guess(action, self.color_names, self.config.length)

    def say_code(self, code: Code) -> str:
        """A code as words."""
        return say_code(code, self.color_names)

    def say_answer(self, answer: Feedback) -> str:
        """Feedback in words."""
        return say_feedback(answer)

    @cached_property
    def best_play(self) -> ExactPlayer:
        """The optimal player of the configured trial. Raises ValueError above 64 codes."""
        weights = episode_weights(*self.played_as_one)
        return ExactPlayer(self.pegs, self.config.max_steps_per_episode, weights)

    def example_action(self, state: CodeState) -> str:
        """The first color, then the second one in all other places."""
        return self.say_code((0, *[1] * (self.config.length - 1)))
