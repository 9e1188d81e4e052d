"""Five small games, and the ways in which an author spoils one.

`lamp` one action: what the prompt shows decides it. `card` two: look at the card, then name it.
`walk` up to eight: go to the flag and stop there. `number` up to four guesses, each answered with
higher or lower. `trial` is the same `card` in two episodes of one action each, of which the first
is a free shot: looking costs it.
"""

import random
from typing import Any, Literal

from pydantic import Field

from agentsgym import EnvSettings, MultistepEnv, register, task_dataset
from agentsgym.agents import ScriptedAgent
from agentsgym.types import PrivilegedAgent

SPOILS = ("", "constant", "blind", "few")
COLORS = ("red", "blue", "green", "white")
SUITS = ("heart", "spade", "club", "star")
CELLS = 4
NUMBERS = 5


class SpoiledSettings(EnvSettings):
    """What the games share."""

    spoil: Literal["", "constant", "blind", "few"] = Field("", description="what is wrong")
    looks: float = Field(-1.0, description="share of looks of the teacher; below 0: random play")
    uses: float = Field(0.0, description="how often the teacher uses what it saw")
    tasks: int = Field(512, ge=1, description="training tasks")
    bonus: float = Field(0.0, description="added to every reward")


class Game(MultistepEnv):
    """A subclass has `actions`, `start(rng)`, `prompt(state, step)`, and `answer(state, action)`,
    which returns what is said, the reward, whether it is over, and whether it informed."""

    Settings = SpoiledSettings
    config: SpoiledSettings
    actions: tuple[str, ...] = ()
    best = 1.0
    reward_range = (0.0, 2.0)

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> Any:
        rng = random.Random(task_data["seed"])
        return {**self.start(rng), "said": "", "seen": None}

    def _format_prompt(self, state: Any, step: int) -> str:
        if step and self.config.spoil == "blind":
            return "Go on."
        return state["said"] if step else self.prompt(state)

    def _step_episode(self, session_id: str, state: Any, action: str) -> Any:
        action = action.strip()
        if action not in self.actions:
            return {**state, "said": "What?"}, 0.0, False, {"malformed": True, "informing": False}
        after, reward, done, informs = self.answer(dict(state), action)
        win = reward > 0
        reward += self.config.bonus if done else 0.0
        return after, reward, done, {"win": win, "informing": informs}

    def _calculate_reward(
        self, state: Any, actions: Any, final_action: str, step_rewards: Any
    ) -> float:
        return 0.5 if self.config.spoil == "constant" else float(sum(step_rewards))

    def _rows(self, first: int, count: int) -> Any:
        return task_dataset(self, [{"seed": first + k} for k in range(count)])

    def get_train_dataset(self) -> Any:
        return self._rows(0, self.config.tasks)

    def get_eval_dataset(self) -> Any:
        return self._rows(1_000_000, 128)

    def reference_score(self, task_data: Any) -> float:
        return self.best + self.config.bonus

    def admissible_actions(self, state: Any) -> list[str]:
        return list(self.actions[:2] if self.config.spoil == "few" else self.actions)

    def teacher_agent(self, *, seed: int = 0) -> Any:
        return None if self.config.looks < 0 else Careless(self, seed)

    def start(self, rng: random.Random) -> dict[str, Any]:
        raise NotImplementedError

    def prompt(self, state: Any) -> str:
        raise NotImplementedError

    def answer(self, state: Any, action: str) -> tuple[Any, float, bool, bool]:
        raise NotImplementedError


class Careless(PrivilegedAgent):
    """Looks in a share of its actions, and uses in a share what it was told."""

    def __init__(self, env: Game, seed: int) -> None:
        self._env, self._rng = env, random.Random(seed)

    def for_session(self, session: Any) -> Any:
        def choose(messages: list[dict[str, Any]]) -> str:
            text = " ".join(m["content"] for m in messages if m["role"] != "assistant")
            known = [suit for suit in SUITS if f"It is the {suit}." in text]
            if known and self._rng.random() < self._env.config.uses:
                return f"say {known[0]}"
            if self._rng.random() < self._env.config.looks:
                return "look"
            return f"say {self._rng.choice(SUITS)}"

        return ScriptedAgent(choose)


class Lamp(Game):
    """The lamp's color decides the key."""

    actions = tuple(f"press {number}" for number in range(1, len(COLORS) + 1))

    def start(self, rng: random.Random) -> dict[str, Any]:
        return {"color": rng.randrange(len(COLORS))}

    def prompt(self, state: Any) -> str:
        seen = "lit" if self.config.spoil == "blind" else COLORS[state["color"]]
        return f"The lamp is {seen}."

    def answer(self, state: Any, action: str) -> tuple[Any, float, bool, bool]:
        return state, float(action == self.actions[-1 - state["color"]]), True, False


class Card(Game):
    """Look, then name the card."""

    actions = (*(f"say {suit}" for suit in SUITS), "look")

    def start(self, rng: random.Random) -> dict[str, Any]:
        return {"suit": rng.choice(SUITS)}

    def prompt(self, state: Any) -> str:
        return "A card lies here."

    def answer(self, state: Any, action: str) -> tuple[Any, float, bool, bool]:
        if action == "look":
            state["said"] = f"It is the {state['suit']}."
            return state, 0.0, False, True
        state["said"] = "It is over."
        return state, float(action == f"say {state['suit']}"), True, False


class Walk(Game):
    """Go to the flag, and stop there."""

    actions = ("left", "right", "stop")

    def start(self, rng: random.Random) -> dict[str, Any]:
        here, flag = rng.sample(range(CELLS), 2)
        return {"here": here, "flag": flag}

    def prompt(self, state: Any) -> str:
        if self.config.spoil == "blind":
            return "You are on a line. There is a flag."
        return f"You are at {state['here']}. The flag is at {state['flag']}."

    def answer(self, state: Any, action: str) -> tuple[Any, float, bool, bool]:
        if action == "stop":
            return state, float(state["here"] == state["flag"]), True, False
        state["here"] = min(CELLS - 1, max(0, state["here"] + (1 if action == "right" else -1)))
        state["said"] = self.prompt(state)
        return state, 0.0, False, False


class Number(Game):
    """Guess a number; each guess is answered with higher or lower."""

    actions = tuple(f"guess {number}" for number in range(1, NUMBERS + 1))

    def start(self, rng: random.Random) -> dict[str, Any]:
        return {"hidden": rng.randint(1, NUMBERS)}

    def prompt(self, state: Any) -> str:
        return f"A number from 1 to {NUMBERS}."

    def answer(self, state: Any, action: str) -> tuple[Any, float, bool, bool]:
        guess = int(action.split()[1])
        state["said"] = "Higher." if guess < state["hidden"] else "Lower."
        win = guess == state["hidden"]
        return state, float(win), win, not win


class Trial(Card):
    """The card in two episodes of one action; the first is a free shot."""

    class Settings(SpoiledSettings):
        episodes_per_trial: int = 2
        free_shots: int = 1
        carry: Literal["none", "full", "summary"] = "full"
        max_steps_per_episode: int = 1

    def _format_answer(self, state: Any, step: int) -> str:
        return str(state["said"])

    def _format_result(self, state: Any, reward: float) -> str:
        if self.config.spoil == "blind":
            return "Go on."
        return super()._format_result(state, reward)


GAMES = {"lamp": Lamp, "card": Card, "walk": Walk, "number": Number, "trial": Trial}
for name, game in GAMES.items():
    register(f"Spoiled-{name}", game)
