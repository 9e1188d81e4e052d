"""What the best player and the best constant action earn in each of the games.

Both are played on all held-out tasks, so in a game that depends on its task alone their means are
exact. `python experiments/strangers/yardsticks.py [NAME …]` prints a line for each game; `EXACT`
has what is known by enumeration over all tasks, as a check.
"""

import sys
from fractions import Fraction
from itertools import permutations
from statistics import fmean

import agentsgym
from agentsgym import MultistepEnv, ScriptedAgent
from agentsgym.agents.scripted import RandomAgent

TUNED = {
    "inventory": "inventory.InventoryEnv",
    "maze": "maze.MazeEnv",
    "shop": "shop.ShopEnv",
    "password": "password.PasswordEnv",
    "cards": "cards.CardsEnv",
    "vending": "vending.VendingEnv",
    "sorting": "sorting.SortingEnv",
    "quiz": "quiz.QuizEnv",
}
"""The games that defaults are chosen by."""
UNSEEN = {
    "treasure": "treasure.TreasureEnv",
    "negotiation": "negotiation.NegotiationEnv",
    "robot": "robot.RobotEnv",
    "dice": "dice.DiceEnv",
}
"""The games that nothing is chosen by."""
GAMES = TUNED | UNSEEN


def made(name: str) -> MultistepEnv:
    """The environment of a game; this folder is on the path."""
    return agentsgym.make(GAMES[name], trust=True)


def mean_reward(env: MultistepEnv, agent: agentsgym.Agent, most: int | None = None) -> float:
    """The agent's mean reward on the first held-out tasks."""
    tasks = list(env.get_eval_dataset()["task_data"])[:most]
    rollouts = env.run_trial(tasks, agent).rollouts
    failed = [rollout.error for rollout in rollouts if rollout.failed]
    if failed:
        raise RuntimeError(failed[0])
    return fmean(rollout.final_reward for rollout in rollouts)


def best(env: MultistepEnv, most: int | None = None) -> float:
    """What the best player earns on the held-out tasks."""
    agent = env.optimal_agent()
    assert agent is not None
    return mean_reward(env, agent, most)


def constant(env: MultistepEnv, most: int | None = None) -> tuple[float, str]:
    """The best constant action and what it earns: of all that are admissible at the beginning of
    20 held-out tasks."""
    actions: dict[str, None] = {}
    for task in list(env.get_eval_dataset()["task_data"])[:20]:
        state = env._begin_episode("", task, env.trial_info())
        actions |= dict.fromkeys(env.admissible_actions(state) or ())
    return max((mean_reward(env, ScriptedAgent([one]), most), one) for one in actions)


def way(reward: float, name: str) -> float:
    """How far a reward is on the way from the best constant action, 0, to the best play, 1."""
    env = made(name)
    low, high = constant(env)[0], best(env)
    return (reward - low) / (high - low)


# -- by enumeration --------------------------------------------------------------------------------


def cards() -> float:
    """The best play of the cards: two seen in the practice, then a new one and the better choice.
    The mean over all orders of four cards."""
    total, orders = Fraction(0), 0
    for first, second, third, fourth in permutations(range(1, 11), 4):
        known = max(first, second)
        left = [card for card in range(1, 11) if card not in (first, second, third)]
        hoped = Fraction(sum(max(card, third) for card in left), len(left))
        keeps = max(known, third) >= hoped
        total += max(known, third) if keeps else max(third, fourth)
        orders += 1
    return float(total / orders / 10)


def vending() -> float:
    """Three buttons tried: found in 3 of 5, else one of two, at the first or the second press."""
    return 3 / 5 + 2 / 5 * (1 + 3 / 5) / 2


def negotiation() -> float:
    from negotiation import play

    return play(3, 9, 3, False)[0] / 10


def dice() -> float:
    from dice import MOST, worth

    return worth(0, MOST) / 20


EXACT = {"cards": cards, "vending": vending, "negotiation": negotiation, "dice": dice}
"""Expected rewards of the best play over all tasks that a seed could make."""


def main(names: list[str]) -> None:
    """Print the yardsticks of these games."""
    for name in names or list(GAMES):
        env = made(name)
        low, action = constant(env)
        exact = f", by enumeration {EXACT[name]():.3f}" if name in EXACT else ""
        chance = mean_reward(env, RandomAgent(env))
        print(
            f"{name}: best play {best(env):.3f}{exact}, random {chance:.3f}, "
            f"always {action!r} {low:.3f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
