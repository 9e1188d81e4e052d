"""Writes the suites of the package, with the exact references of their games.

    python scripts/suites.py

A suite is frozen: whoever changes what a suite plays or compares with raises its version here.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agentsgym import make
from agentsgym.envs.bandit import FiniteHorizon, trial_weights
from agentsgym.envs.exploration import BestPlayer
from agentsgym.envs.mastermind import ExactPlayer
from bandit_players import best_policy, expected_successes
from expectations import RandomPlayer, explored, guessed_with_hint

FOLDER = Path(__file__).parents[1] / "src/agentsgym/suites"
FIRST_SEED = 2_000_000  # beyond the seeds of every environment's training and evaluation tasks
SEEDS_APART = 10_000
TASKS = 64
TRIAL = {"episodes_per_trial": 2, "free_shots": 1, "carry": "full"}
EXPLORE = {
    "place": {},
    "place-noisy": {"noise": 0.3, "free_shots": 4},
    "place-two-facts": {"facts": 2, "free_shots": 2},
    "place-costly": {"episodes_per_trial": 4, "free_shots": 0},
    "switches": {"game": "switches"},
    "rule": {"game": "rule"},
}
EXPLORE_KEYS = (
    "game",
    "choices",
    "facts",
    "noise",
    "look_cost",
    "max_steps_per_episode",
    "episodes_per_trial",
    "free_shots",
    "carry",
)
DESCRIPTION = (
    "Exploration in trials with exact best play. In the games of Explore only an action that earns "
    "nothing informs; in the others play for the score informs as well."
)


def explore(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    env = make("Explore", env_config={"game": "place", "carry": "full", **config})
    config, plan = {key: getattr(env.config, key) for key in EXPLORE_KEYS}, env.plan
    players = {
        "random": RandomPlayer(plan),
        "unexploring": BestPlayer(plan, informs=False),
        "best": BestPlayer(plan),
    }
    means = {key: explored(plan, player).rewards for key, player in players.items()}
    first = FIRST_SEED + SEEDS_APART * list(EXPLORE).index(name)
    return game(name, "Explore", config, means, "never_informing", {"seeds": balanced(env, first)})


def balanced(env: Any, first: int) -> list[int]:
    """Seeds with equally many tasks for each value of what the last episode asks for, in turn, so
    that favorite answers earn in every part of the list what they earn on average."""
    last, choices = env.config.episodes_per_trial - 1, env.config.choices
    by_value: list[list[int]] = [[] for _ in range(choices)]
    seed = first
    while min(map(len, by_value)) < TASKS // choices:
        task = {"seed": seed}
        value = env._initialize_episode("", task)["hidden"][env.question(task, last).fact]
        if len(by_value[value]) < TASKS // choices:
            by_value[value].append(seed)
        seed += 1
    return [seed for group in zip(*by_value, strict=True) for seed in group]


def bandit() -> dict[str, Any]:
    arms, pulls = 5, 4
    config = {"arms": arms, "max_steps_per_episode": pulls, **TRIAL}
    best = FiniteHorizon(arms, trial_weights(pulls, 2, 1))
    alone = FiniteHorizon(arms, trial_weights(pulls)).value()
    played = expected_successes(best_policy(best), 2 * pulls, arms=arms)
    episodes = [sum(played[:pulls]) / pulls, sum(played[pulls:]) / pulls]
    rewards = {"random": (0.5, 0.5), "unexploring": (alone, alone), "best": episodes}
    tasks = list(range(FIRST_SEED, FIRST_SEED + TASKS))
    return game("bandit", "Bandit", config, rewards, "scored_alone", {"seeds": tasks})


def mastermind() -> dict[str, Any]:
    config = {"colors": 6, "length": 2, "max_steps_per_episode": 2, **TRIAL}
    env = make("Mastermind", env_config=config)
    space, steps = env.space, 2
    best = guessed_with_hint(env.best_play).wins
    alone = guessed_with_hint(ExactPlayer(space, steps)).score
    chance = 1 - (1 - 1 / len(space)) ** steps
    codes = [f"{a} {b}" for a in env.color_names for b in env.color_names]
    tasks = [{"solution": code, "seed": FIRST_SEED + k} for k in range(2) for code in mixed(codes)]
    rewards = {"random": (chance, chance), "unexploring": (alone, alone), "best": best}
    return game("mastermind", "Mastermind", config, rewards, "scored_alone", {"tasks": tasks})


def twenty_questions() -> dict[str, Any]:
    config = {"table": "quickstart", "max_steps_per_episode": 5, **TRIAL}
    env = make("TwentyQuestions", env_config=config)
    tasks = [{"solution": secret, "seed": 0} for secret in mixed(env.table.secrets)]
    rollouts = env.run_trial(tasks, env.optimal_agent()).rollouts
    best = [sum(r.episodes[k].reward for r in rollouts) / len(rollouts) for k in (0, 1)]
    alone = sum(env.reference_play(task)[0].reward for task in tasks) / len(tasks)
    chance = 1 / len(tasks)
    rewards = {"random": (chance, chance), "unexploring": (alone, alone), "best": best}
    return game("twenty-questions", "TwentyQuestions", config, rewards, "scored_alone",
                {"tasks": tasks})  # fmt: skip


def game(
    name: str,
    env: str,
    config: Mapping[str, Any],
    rewards: Mapping[str, Any],
    without: str,
    tasks: Mapping[str, Any],
) -> dict[str, Any]:
    references = {key: [round(r, 9) for r in values] for key, values in rewards.items()}
    references |= {"without": without}
    settings = {**config, "explain_actions": True}
    return {"name": name, "env": env, "env_config": settings, **tasks, "references": references}


def mixed(values: Any) -> list[str]:
    """The values in a fixed random order, so that a part of the tasks is a fair sample."""
    shuffled = list(values)
    random.Random(0).shuffle(shuffled)
    return shuffled


def suites() -> dict[str, dict[str, Any]]:
    """Every suite by its name."""
    games = [explore(name, config) for name, config in EXPLORE.items()]
    games += [bandit(), mastermind(), twenty_questions()]
    return {
        "explore": {"name": "explore", "version": 1, "description": DESCRIPTION, "games": games}
    }


def text_of(suite: Mapping[str, Any]) -> str:
    """A suite as YAML."""
    head = "# Written by scripts/suites.py.\n"
    return head + yaml.safe_dump(
        dict(suite), sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
    )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, suite in suites().items():
        (FOLDER / f"{name}.yaml").write_text(text_of(suite), encoding="utf-8")


if __name__ == "__main__":
    main()
