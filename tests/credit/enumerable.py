"""Random processes that can be enumerated, and the expected gradient of an estimator on them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from experiments.estimators.processes import Move, Process, every_group, gradients

from agentsgym.credit import StepTable
from agentsgym.types.rows import Flags, Floats

GROUP = 3


def stopping_process(seed: int = 0) -> Process:
    """3 steps, 3 actions, action 0 stops: 15 trajectories.

    The state is the step and the last action, so that histories share states. The reward depends
    on the whole history.
    """
    rng = np.random.default_rng(seed)
    states = {(0, 0): 0, (1, 1): 1, (1, 2): 2, (2, 1): 3, (2, 2): 4}
    theta = rng.normal(size=(5, 3))
    trajectories = []

    def extend(moves: tuple[Move, ...]) -> None:
        step = len(moves)
        state = states[step, moves[-1].action if moves else 0]
        for action in range(3):
            longer = (*moves, Move(0, step, state, action, float(rng.normal())))
            if action == 0 or step == 2:
                trajectories.append(longer)
            else:
                extend(longer)

    extend(())
    return Process(theta, tuple(trajectories))


def noted_process(seed: int = 0) -> Process:
    """Action 0 stops, 1 leads to a note and then to a last action, 2 to the last action alone:
    13 trajectories. The policy depends on the whole history, so the last action sees the note.
    """
    rng = np.random.default_rng(seed)
    states: dict[object, int] = {}
    trajectories = []

    def extend(moves: tuple[Move, ...]) -> None:
        history = tuple(m.action for m in moves)
        state = states.setdefault(history, len(states))
        for action in range(3):
            note = history == (1,)
            reward = 0.0 if note else float(rng.normal())
            longer = (*moves, Move(0, len(moves), state, action, reward, note=note))
            if (history == () and action == 0) or (history and not note):
                trajectories.append(longer)
            else:
                extend(longer)

    extend(())
    return Process(rng.normal(size=(len(states), 3)), tuple(trajectories))


def trial_process(weights: Sequence[float], seed: int = 0) -> Process:
    """Two episodes of up to 2 steps, 2 actions each, action 0 stops: 9 trials.

    Policy and rewards depend on the whole history, so the first episode is carried over.
    `weights` are 1.0 for a scored episode, 0.0 for a free shot; the return is the mean over the
    scored ones.
    """
    rng = np.random.default_rng(seed)
    shares = np.array(weights) / np.count_nonzero(weights)
    states: dict[object, int] = {}
    trajectories = []

    def extend(moves: tuple[Move, ...], episode: int, step: int) -> None:
        history = (*((m.episode, m.action) for m in moves), (episode,))
        state = states.setdefault(history, len(states))
        for action in range(2):
            move = Move(episode, step, state, action, float(rng.normal()), float(shares[episode]))
            longer = (*moves, move)
            if action and step == 0:
                extend(longer, episode, 1)
            elif episode == 0:
                extend(longer, 1, 0)
            else:
                trajectories.append(longer)

    extend((), 0, 0)
    return Process(rng.normal(size=(len(states), 2)), tuple(trajectories))


def spelled_process(weights: Sequence[float], seed: int = 0) -> Process:
    """Episodes of one step, whose action is token 0, or token 1 and one more: 3 actions.

    The policy depends on the whole history; an action earns the same in every episode, and some
    noise of its own where it is taken. `weights` as in `trial_process`.
    """
    rng = np.random.default_rng(seed)
    shares = np.array(weights) / np.count_nonzero(weights)
    worth = rng.normal(size=3)
    states: dict[object, int] = {}
    trajectories = []

    def extend(moves: tuple[Move, ...], episode: int) -> None:
        if episode == len(weights):
            trajectories.append(moves)
            return
        history = tuple(m.action for m in moves)
        first = states.setdefault((episode, history), len(states))
        second = states.setdefault((episode, history, 1), len(states))
        look, *spelled = worth + rng.normal(size=3) / 2
        weight = float(shares[episode])
        extend((*moves, Move(episode, 0, first, 0, float(look), weight)), episode + 1)
        for action, reward in enumerate(spelled):
            begun = Move(episode, 0, first, 1, 0.0, weight)
            ended = Move(episode, 0, second, action, float(reward), weight, token=1)
            extend((*moves, begun, ended), episode + 1)

    extend((), 0)
    return Process(rng.normal(size=(len(states), 2)), tuple(trajectories))


def one_by_one(estimator: Callable[[StepTable], Floats]) -> Callable[[StepTable], Floats]:
    """An estimator that looks at a whole batch, with each group as a batch of its own."""

    def of_each(table: StepTable) -> Floats:
        groups = table.group[table.rollout]
        values = np.zeros(len(groups))
        for group in np.unique(table.group):
            values[groups == group] = estimator(_part(table, table.group == group))
        return values

    return of_each


def _part(table: StepTable, rollouts: Flags) -> StepTable:
    steps = rollouts[table.rollout]
    per_rollout = ("group", "live", "final_reward", "env", "index", "trunk")
    columns = {
        name: getattr(table, name)[rollouts if name in per_rollout else steps]
        for name in StepTable.__slots__
    }
    places = {k: np.cumsum(rollouts)[columns[k]] - 1 for k in ("rollout", "trunk")}
    return StepTable(**columns | places)


Weights = Callable[[StepTable], Floats]


def constant(table: StepTable) -> Floats:
    """The weight of each step's loss under a constant normalizer: 1 / G."""
    return np.full(len(table.reward), 1.0 / GROUP)


def per_length(table: StepTable) -> Floats:
    """1 / (G · the rollout's tokens), as in loss types "grpo" and "sapo"."""
    return 1.0 / (GROUP * np.bincount(table.rollout)[table.rollout])


def per_all_tokens(table: StepTable) -> Floats:
    """1 / (all tokens of the group), as in loss types "dapo", "cispo" and "vespo"."""
    groups = table.group[table.rollout]
    return 1.0 / np.bincount(groups)[groups]


def gradient_of_each(
    process: Process, estimator: Callable[[StepTable], Floats], weights: Weights = constant
) -> tuple[Floats, Floats]:
    """Σ weight · A · ∇ log π of every group, shape (M, S, A), and the groups' probabilities."""
    groups = every_group(process, GROUP)
    coefficient = weights(groups.table) * estimator(groups.table)
    return gradients(process, groups, coefficient[groups.tokens.step]), groups.chance


def expectation(
    process: Process, estimator: Callable[[StepTable], Floats], weights: Weights = constant
) -> Floats:
    """E[Σ weight · A · ∇ log π] over all groups, shape (S, A)."""
    each, chance = gradient_of_each(process, estimator, weights)
    return np.tensordot(chance, each, 1)


def discounted(process: Process, gamma: float) -> Process:
    """The process with its rewards discounted by gamma^step."""
    moves = ([replace(m, reward=gamma**m.step * m.reward) for m in t] for t in process.trajectories)
    return replace(process, trajectories=tuple(map(tuple, moves)))
