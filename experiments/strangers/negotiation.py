"""Sell a lamp to a partner who has a secret limit; a first talk is practice."""

import random
import re
from functools import cache

from agentsgym import EnvSettings, MultistepEnv, ScriptedAgent, task_dataset

PRICES = [3, 4, 5, 6, 7, 8, 9]
PARTNERS = ["Mr. Brown", "Mrs. Green", "Miss Gray", "Mr. White"]


class NegotiationEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = 3
        episodes_per_trial: int = 2
        free_shots: int = 1
        carry: str = "full"

    reward_range = (0.0, 1.0)

    def _begin_episode(self, session_id, task_data, trial):
        rng = random.Random(task_data["seed"])
        limit, partner = rng.choice(PRICES), rng.choice(PARTNERS)
        talk = "This time it counts." if trial.scored else "This is a rehearsal."
        return {"limit": limit, "partner": partner, "asked": 0, "talk": talk, "answer": ""}

    def _format_prompt(self, state, step):
        if step > 0:
            return f"{state['partner']}: {state['answer']}"
        return (
            f"{state['talk']} You sell a lamp to {state['partner']}, who pays at most a secret "
            "sum, today and next time the same. Ask for 3 to 9 coins; after three refusals the "
            "lamp is not sold."
        )

    def _step_episode(self, session_id, state, action):
        match = re.fullmatch(r"ask (\d)", action.strip().lower())
        if match is None or int(match[1]) not in PRICES:
            answer = "How many coins do you ask?"
            return {**state, "answer": answer}, 0.0, False, {"malformed": True}
        price, asked = int(match[1]), state["asked"] + 1
        deal = price <= state["limit"]
        answer = f"{price}? Deal!" if deal else f"{price}? That is too much."
        new = {**state, "asked": asked, "answer": answer}
        return new, price / 10 if deal else 0.0, deal or asked == 3, {"win": deal}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(700)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(700, 956)])

    def admissible_actions(self, state):
        return [f"ask {price}" for price in PRICES]

    def optimal_agent(self):
        def choose(messages):
            texts = [m["content"] for m in messages if m["role"] == "user"]
            joined = "\n".join(texts)
            refused = [int(p) for p in re.findall(r"(\d)\? That is", joined)]
            agreed = [int(p) for p in re.findall(r"(\d)\? Deal", joined)]
            low, high = max([3, *agreed]), min([10, *refused]) - 1
            counts = "it counts" in joined
            start = [k for k, text in enumerate(texts) if "You sell a lamp" in text][-1]
            return f"ask {play(low, high, 3 - (len(texts) - 1 - start), counts)[1]}"

        return ScriptedAgent(choose)


@cache
def play(low, high, asks, counts):
    """(expected price in the talk that counts, best question) if the limit is one of low..high."""
    if asks == 0:
        return (0.0, 0) if counts else play(low, high, 3, True)
    best = (-1.0, 0)
    for price in range(low, high + 1):
        refused = (price - low) / (high - low + 1)
        lost = play(low, price - 1, asks - 1, counts)[0] if price > low else 0.0
        won = float(price) if counts else play(price, high, 3, True)[0]
        best = max(best, (refused * lost + (1 - refused) * won, price))
    return best
