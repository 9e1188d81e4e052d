"""Five cards lie face down, and the higher of two that you turn over counts; once for practice."""

import random
import re

from agentsgym import EnvSettings, MultistepEnv, ScriptedAgent, task_dataset

PLACES = "ABCDE"


class CardsEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = 2
        episodes_per_trial: int = 2
        free_shots: int = 1
        carry: str = "full"

    reward_range = (0.0, 1.0)

    def _begin_episode(self, session_id, task_data, trial):
        cards = random.Random(task_data["seed"]).sample(range(1, 11), 5)
        game = f"Game {trial.episode + 1} of {trial.episodes}"
        kind = "counts" if trial.scored else "is practice"
        return {"cards": cards, "turned": [], "text": "", "head": f"{game}. It {kind}."}

    def _format_prompt(self, state, step):
        if step > 0:
            return state["text"]
        return (
            f"{state['head']} Five cards from 1 to 10 lie face down: A, B, C, D and E. Turn over "
            "two of them; your score is the higher one. They lie the same in both games. "
            "Which one do you turn over?"
        )

    def _step_episode(self, session_id, state, action):
        letter = action.strip().upper()
        if letter not in tuple(PLACES):
            return {**state, "text": "That is no card."}, 0.0, False, {"malformed": True}
        card = state["cards"][PLACES.index(letter)]
        turned = [*state["turned"], letter]
        cards = [state["cards"][PLACES.index(place)] for place in turned]
        done = len(turned) == 2
        new = {**state, "turned": turned, "text": f"{letter} is a {card}."}
        return new, max(cards) / 10 if done else 0.0, done, {}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(800)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(800, 1056)])

    def admissible_actions(self, state):
        return [place for place in PLACES if place not in state["turned"]]

    def optimal_agent(self):
        return ScriptedAgent(_turn)


def _turn(messages):
    """New cards in the practice. Then a new card first, and the better of the best known one and
    what another new one is worth on average."""
    texts = "\n".join(m["content"] for m in messages if m["role"] == "user")
    shown = {place: int(card) for place, card in re.findall(r"\b([A-E]) is a (\d+)", texts)}
    new = [place for place in PLACES if place not in shown]
    best = max(shown, key=lambda place: shown[place], default="")
    if len(shown) < 3:
        return new[0]
    now = list(shown)[-1]
    left = [card for card in range(1, 11) if card not in shown.values()]
    hoped = sum(max(card, shown[now]) for card in left) / len(left)
    return best if best != now and max(shown[best], shown[now]) >= hoped else new[0]
