"""The environments in this package: name, class path, and required extra."""

from dataclasses import dataclass

TEXTARENA_GAMES = (
    "2048",
    "Bandit",
    "Blackjack",
    "Countdown",
    "Crosswords",
    "Cryptarithm",
    "FifteenPuzzle",
    "FrozenLake",
    "GuessTheNumber",
    "LightsOut",
    "LogicPuzzle",
    "Mastermind",
    "Minesweeper",
    "PegJump",
    "RushHour",
    "Secretary",
    "Set",
    "Slitherlink",
    "Sokoban",
    "Sudoku",
    "ThreeCardMonte",
    "TowerOfHanoi",
)
GYMNASIUM_PRESETS = ("FrozenLake", "Taxi", "CliffWalking", "Blackjack")


@dataclass(frozen=True, slots=True)
class Shipped:
    """The dotted path of an environment's class, and the extra that its `module` needs, if any."""

    path: str
    extra: str | None = None
    module: str | None = None


def _textarena(game: str) -> Shipped:
    path = f"agentsgym.envs.textarena.env.TextArena{game}Env"
    return Shipped(path, "textarena", "textarena")


def _gymnasium(preset: str) -> Shipped:
    path = f"agentsgym.envs.gymnasium.presets.Gymnasium{preset}Env"
    return Shipped(path, "gymnasium", "gymnasium")


SHIPPED: dict[str, Shipped] = {
    "TwentyQuestions": Shipped("agentsgym.envs.twenty_questions.env.TwentyQuestionsEnv"),
    "Bandit": Shipped("agentsgym.envs.bandit.env.BanditEnv"),
    "Mastermind": Shipped("agentsgym.envs.mastermind.env.MastermindEnv"),
    "ClassicalReasoning": Shipped("agentsgym.envs.classical_reasoning.env.ClassicalReasoningEnv"),
    "ALFWorld": Shipped("agentsgym.envs.alfworld.env.ALFWorldEnv", "alfworld", "alfworld"),
    "TextWorld": Shipped("agentsgym.envs.textworld.env.TextWorldEnv", "textworld", "textworld"),
    **{f"TextArena/{game}": _textarena(game) for game in TEXTARENA_GAMES},
    **{f"Gymnasium/{preset}": _gymnasium(preset) for preset in GYMNASIUM_PRESETS},
}
