"""Environments without a model: TextArena ours against the bare game, and steps per second.

    python benchmarks/environments.py

Prints one JSON line. Ours and the bare game get the same moves, and the times count only where both
did the same work: as many steps, the same observations at every step, the same reward. Times are
CPU seconds of the process, the best of several rounds in which both sides take turns, so that
other programs on the machine matter little; with processes they are wall seconds.
"""

import importlib
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentsgym import DirectOutputAgent, make
from agentsgym.checks.playing import agent_texts, play_in_turn, random_player, replay, taken
from agentsgym.envs.textarena.play import kept_deal
from agentsgym.types import EngineStats, GenerationRequest, GenerationResult

ROUNDS = 5
TASKS = 40
SESSIONS = 200
AGAINST_BARE = ("GuessTheNumber", "Mastermind", "TowerOfHanoi", "FrozenLake", "2048", "Minesweeper")
AGAINST_BARE += ("Blackjack", "Sudoku")
NATIVE = ("TwentyQuestions", "ClassicalReasoning", "Bandit", "Mastermind", "Gymnasium/FrozenLake")
NATIVE += ("Gymnasium/Taxi", "TextArena/Mastermind", "TextArena/2048")

Moves = list[tuple[int, list[str]]]
Played = list[tuple[int, float, list[str]]]


def main() -> None:
    """Print all figures as one JSON line."""
    figures: dict[str, float] = {}
    for game in AGAINST_BARE:
        figures |= against_bare(game)
    ratios = [value for key, value in figures.items() if key.endswith("_ours_per_bare")]
    figures["textarena_lowest_ours_per_bare"] = min(ratios)
    for name in NATIVE:
        figures[f"{name}_steps_per_second"] = native(name)
        figures[f"{name}_kib_per_session"] = memory(name)
    figures |= in_processes("TwentyQuestions", "Is it an animal?")
    figures |= in_processes("TextArena/Minesweeper", "[0 0]")
    figures |= alfworld()
    print(json.dumps({key: float(f"{value:.4g}") for key, value in figures.items()}))


def against_bare(game: str) -> dict[str, float]:
    """Steps per second of ours and of the bare game on the same moves, and their ratio."""
    env = make(f"TextArena/{game}", None, {"max_steps_per_episode": 500, "explain_actions": False})
    moves = scripts(env)
    best = {"ours": 0.0, "bare": 0.0}
    for _ in range(ROUNDS):
        played = {}
        for side, play in (("ours", play_ours), ("bare", play_bare)):
            seconds, played[side] = timed(play, env, moves)
            steps = sum(count for count, _, _ in played[side])
            best[side] = max(best[side], steps / seconds)
        if played["ours"] != played["bare"]:
            raise SystemExit(f"{game}: ours and the bare game did not do the same work")
    name = f"textarena_{game}"
    return {
        f"{name}_steps_per_second": best["ours"],
        f"{name}_bare_steps_per_second": best["bare"],
        f"{name}_ours_per_bare": best["ours"] / best["bare"],
    }


def scripts(env: Any) -> Moves:
    """Moves of random play on some seeds, up to where each game ended."""
    tasks = [row["task_data"] for row in env.get_train_dataset()]
    seeds = [tasks[k % len(tasks)]["seed"] for k in range(TASKS)]
    player = random_player(0, nonsense=0.0)
    rollouts = play_in_turn(env, [{"seed": seed} for seed in seeds], player)
    return [(seed, agent_texts(rollout)) for seed, rollout in zip(seeds, rollouts, strict=True)]


def play_ours(env: Any, moves: Moves) -> Played:
    """The environment's own methods, as a rollout calls them; no puzzle is kept from before."""
    kept_deal.cache_clear()
    played = []
    for seed, actions in moves:
        state = env._initialize_episode("s", {"seed": seed})
        texts, reward, done, steps = [env._format_prompt(state, 0)], 0.0, False, 0
        for action in actions:
            if done:
                break
            state, paid, done, _ = env._step_episode("s", state, action)
            steps, reward = steps + 1, reward + paid
            texts.append(env._format_prompt(state, steps))
        played.append((steps, reward, [text for text in texts if text != "Your move."]))
    return played


def play_bare(env: Any, moves: Moves) -> Played:
    """TextArena's raw game, one after another, drawing from the global generator."""
    textarena = importlib.import_module("textarena")
    own = textarena.ObservationType.PLAYER_ACTION
    played = []
    for seed, actions in moves:
        random.seed(seed)
        game = textarena.make(env._env_id, **env._options)
        game.reset(num_players=1, seed=seed)
        texts, done, steps = [observed(game, own)], False, 0
        for action in actions:
            if done:
                break
            done, _ = game.step(action)
            steps += 1
            texts.append(observed(game, own))
        reward = float(game.close()[0][0]) if done else 0.0
        played.append((steps, reward, [text for text in texts if text]))
    return played


def observed(game: Any, own: Any) -> str:
    """The bare game's observation as text, without the player's own words."""
    _, observations = game.get_observation()
    return "\n".join(text.strip() for _, text, kind in observations if kind != own)


def timed(play: Callable[..., Played], env: Any, moves: Moves) -> tuple[float, Played]:
    """CPU seconds of this process, and what was played."""
    began = time.process_time()
    played = play(env, moves)
    return time.process_time() - began, played


def native(name: str) -> float:
    """Steps per CPU second of whole trials: the environment, the conversation, the records."""
    env = make(name)
    tasks = first_tasks(env, TASKS)
    actions = [agent_texts(r) for r in play_in_turn(env, tasks, random_player(0, nonsense=0.0))]
    best = 0.0
    for _ in range(ROUNDS):
        began = time.process_time()
        steps = sum(len(taken(one)) for one in play_in_turn(env, tasks, replay(actions)))
        best = max(best, steps / (time.process_time() - began))
    return best


def memory(name: str) -> float:
    """KiB of Python objects per session that has begun and not ended."""
    env = make(name)
    tasks = first_tasks(env, SESSIONS)
    env._initialize_episode("warm", dict(tasks[0]))
    tracemalloc.start()
    states = [env._initialize_episode(f"{k}", dict(task)) for k, task in enumerate(tasks)]
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / 1024 / len(states)


class InstantEngine:
    """Answers every request at once with the same text."""

    tokenizer = None
    stats = EngineStats()

    def __init__(self, answer: str, capacity: int) -> None:
        self.capacity = capacity
        self._answer = answer
        self._ready: list[GenerationResult] = []

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        self._ready += [GenerationResult.of_text(self._answer, r.session_id) for r in requests]

    def poll(self) -> list[GenerationResult]:
        ready, self._ready = self._ready, []
        return ready

    def cancel(self, session_ids: Sequence[str]) -> None: ...

    def release(self, session_ids: Sequence[str]) -> None: ...


def in_processes(name: str, action: str) -> dict[str, float]:
    """Steps per wall second of 64 sessions at once in this process and in two others, which must
    play the same games; the best of several rounds."""
    best, conversations = {0: 0.0, 2: 0.0}, []
    for _ in range(ROUNDS):
        for workers in best:
            env = make(name, None, {"workers": workers, "max_steps_per_episode": 20})
            tasks = first_tasks(env, 64)
            agent = DirectOutputAgent(InstantEngine(action, len(tasks)))
            env.run_trial(tasks[:2], agent)
            began = time.perf_counter()
            batch = env.run_trial(tasks, agent)
            seconds = time.perf_counter() - began
            steps = sum(len(rewards) for rewards in batch["step_rewards"])
            best[workers] = max(best[workers], steps / seconds)
            conversations.append(batch["final_completion_messages"])
    if any(messages != conversations[0] for messages in conversations):
        raise SystemExit(f"{name}: processes play other games than this one")
    return {f"{name}_{workers}_processes_steps_per_second": rate for workers, rate in best.items()}


def first_tasks(env: Any, count: int) -> list[Mapping[str, Any]]:
    """The first tasks, repeated where there are too few."""
    tasks = [
        dict(task) for task in env.get_train_dataset().select_columns("task_data")["task_data"]
    ]
    return [tasks[k % len(tasks)] for k in range(count)]


def alfworld() -> dict[str, float]:
    """ALFWorld's figures; none where its benchmark or its extra is not there."""
    try:
        module = importlib.import_module("environments_alfworld")
    except ImportError:
        return {}
    measured: dict[str, float] = module.measure()
    return measured


if __name__ == "__main__":
    main()
