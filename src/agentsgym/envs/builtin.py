"""The environments in this package, and those that play other frameworks' environments: name, class
path, and required extra."""

from dataclasses import dataclass

from agentsgym.types.names import table

_TEXTARENA = (
    "2048 Bandit Blackjack Countdown Crosswords Cryptarithm FifteenPuzzle FrozenLake "
    "GuessTheNumber LightsOut LogicPuzzle Mastermind Minesweeper PegJump RushHour Secretary Set "
    "Slitherlink Sokoban Sudoku ThreeCardMonte TowerOfHanoi"
)
TEXTARENA_GAMES = tuple(_TEXTARENA.split())
GYMNASIUM_PRESETS = {
    "FrozenLake": "cross the ice without falling into a hole",
    "Taxi": "pick up a passenger and bring them to their destination",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinEnv:
    """An environment of the package.

    `path` is its class's dotted path, `help` a sentence about it, `page` its page in
    docs/environments (OpenEnv's in docs/integrations). `extra` is the extra that it needs, if any,
    and `module` what that brings.
    """

    name: str
    path: str
    help: str
    page: str
    extra: str | None = None
    module: str | None = None


BUILTIN = table(
    BuiltinEnv(
        name="TwentyQuestions",
        path="agentsgym.envs.twenty_questions.env.TwentyQuestionsEnv",
        help="Guess a secret word by asking yes/no questions; a knowledge table answers.",
        page="twenty-questions",
    ),
    BuiltinEnv(
        name="Bandit",
        path="agentsgym.envs.bandit.BanditEnv",
        help="Pull one of several arms, again and again; each arm wins with its own probability.",
        page="small-games",
    ),
    BuiltinEnv(
        name="Mastermind",
        path="agentsgym.envs.mastermind.MastermindEnv",
        help="Find a code of colored pegs; each guess gets the number of right and misplaced pegs.",
        page="small-games",
    ),
    BuiltinEnv(
        name="Wordle",
        path="agentsgym.envs.wordle.env.WordleEnv",
        help="Find a word of five letters; each guess gets a mark for each letter.",
        page="small-games",
    ),
    BuiltinEnv(
        name="Explore",
        path="agentsgym.envs.exploration.env.ExploreEnv",
        help="Find out what is hidden by looking, which earns nothing; then use it for a reward.",
        page="explore",
    ),
    BuiltinEnv(
        name="ExploreMany",
        path="agentsgym.envs.exploration.many.ExploreManyEnv",
        help="Games like Explore's from many families; each task has its own language.",
        page="explore",
    ),
    BuiltinEnv(
        name="ClassicalReasoning",
        path="agentsgym.envs.classical_reasoning.env.ClassicalReasoningEnv",
        help="Answer questions whose answers are known.",
        page="classical-reasoning",
    ),
    BuiltinEnv(
        name="ALFWorld",
        path="agentsgym.envs.alfworld.env.ALFWorldEnv",
        help="Find, clean, heat, cool and place things in a household, by text commands.",
        page="text-adventures",
        extra="alfworld",
        module="alfworld",
    ),
    BuiltinEnv(
        name="TextWorld",
        path="agentsgym.envs.textworld.env.TextWorldEnv",
        help="Text adventures with a quest.",
        page="text-adventures",
        extra="textworld",
        module="textworld",
    ),
    *(
        BuiltinEnv(
            name=f"TextArena/{game}",
            path=f"agentsgym.envs.textarena.env.TextArena{game}Env",
            help=f"TextArena's {game}.",
            page="textarena",
            extra="textarena",
            module="textarena",
        )
        for game in TEXTARENA_GAMES
    ),
    *(
        BuiltinEnv(
            name=f"Gymnasium/{preset}",
            path=f"agentsgym.envs.gymnasium.Gymnasium{preset}Env",
            help=f"Gymnasium's {preset}: {rules}.",
            page="textarena",
            extra="gymnasium",
            module="gymnasium",
        )
        for preset, rules in GYMNASIUM_PRESETS.items()
    ),
)
"""The environments of the package by their registered names."""

KNOWN = table(
    *BUILTIN.values(),
    BuiltinEnv(
        name="Program",
        path="agentsgym.envs.program.env.ProgramEnv",
        help="Any program that calls a model; its calls are the steps.",
        page="program",
        extra="endpoint",
        module="uvicorn",
    ),
    BuiltinEnv(
        name="OpenEnv",
        path="agentsgym.integrations.openenv.env.OpenEnvEnv",
        help="Any server of the OpenEnv protocol; `base_url` names it.",
        page="openenv",
        extra="http",
        module="websockets",
    ),
)
"""Also those that play what the user names, and need settings to be made."""
