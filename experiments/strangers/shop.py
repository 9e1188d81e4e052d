"""A shop: a purse, things with prices, and how much each is worth to you."""

import itertools
import random

from agentsgym import EnvSettings, MultistepEnv, PrivilegedAgent, ScriptedAgent, task_dataset

GOODS = ["apple", "lamp", "rope", "kettle", "hat", "book", "chair", "drum"]


def stock(seed):
    """Price and worth of four things, and the coins in the purse."""
    rng = random.Random(seed)
    goods = {name: (rng.randint(2, 8), rng.randint(1, 9)) for name in rng.sample(GOODS, 4)}
    return goods, rng.randint(8, 12)


def best_basket(goods, coins):
    baskets = [b for n in range(5) for b in itertools.combinations(goods, n)]
    paid = [b for b in baskets if sum(goods[g][0] for g in b) <= coins]
    return max(paid, key=lambda basket: sum(goods[g][1] for g in basket))


class ShopEnv(MultistepEnv):
    class Settings(EnvSettings):
        max_steps_per_episode: int = 5

    reward_range = (0.0, 1.0)

    def _initialize_episode(self, session_id, task_data):
        goods, coins = stock(task_data["seed"])
        most = sum(goods[name][1] for name in best_basket(goods, coins))
        return {"goods": goods, "coins": coins, "bought": [], "most": most, "error": ""}

    def _format_prompt(self, state, step):
        if step > 0:
            return f"{state['error']}You have {state['coins']} coins left.".strip()
        lines = [f"- {n}: costs {p}, worth {w} points" for n, (p, w) in state["goods"].items()]
        return "\n".join(
            [
                f"You have {state['coins']} coins. The shop sells one of each:",
                *lines,
                "Say 'buy' and a thing, or 'leave'. Get as many points as you can.",
            ]
        )

    def _step_episode(self, session_id, state, action):
        words = action.strip().lower().split()
        if words == ["leave"]:
            return state, 0.0, True, {}
        name = words[1] if len(words) == 2 and words[0] == "buy" else ""
        if name not in state["goods"] or name in state["bought"]:
            return {**state, "error": "Not for sale. "}, 0.0, False, {"malformed": True}
        price, worth = state["goods"][name]
        if price > state["coins"]:
            return {**state, "error": "Too expensive. "}, 0.0, False, {}
        coins, bought = state["coins"] - price, [*state["bought"], name]
        new = {**state, "coins": coins, "bought": bought, "error": ""}
        return new, worth / state["most"], len(self.admissible_actions(new)) == 1, {}

    def get_train_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(1000)])

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(5000, 5256)])

    def admissible_actions(self, state):
        left = [n for n in state["goods"] if n not in state["bought"]]
        return [*(f"buy {n}" for n in left if state["goods"][n][0] <= state["coins"]), "leave"]

    def reference_score(self, task_data):
        return 1.0

    def optimal_agent(self):
        return Shopper()


class Shopper(PrivilegedAgent):
    """Buys the best basket; the prompt tells all of it."""

    def for_session(self, session):
        basket = best_basket(*stock(session.task_data["seed"]))
        return ScriptedAgent([*(f"buy {name}" for name in basket), "leave"])
