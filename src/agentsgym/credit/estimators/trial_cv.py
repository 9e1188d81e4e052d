"""Credit across episodes without the luck of the agent's own later actions."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from statistics import median_low

import numpy as np

from agentsgym.credit.baselines import less_expected, trial_returns
from agentsgym.credit.estimator import Estimator, Variant
from agentsgym.credit.table import Choices, StepTable
from agentsgym.types.rows import Flags, Floats, Ints

Action = tuple[int, ...]
"""The token ids of an action."""

Worth = Mapping[Action, float]
"""What actions earn, measured from that of an unknown one."""


def trial_cv(table: StepTable, *, gamma: float = 1.0, trial_gamma: float = 1.0) -> Floats:
    """As "trial", with a control variate from the group's other rollouts, shape (N,).

    Rollouts of a group share the hidden task, so the others know what an action earns there. The
    luck of a later action is subtracted from a step's return: Q̃_t = Q_t − Σ_{k > t} w_k CV_k, and
    A_t = Q̃_t − (mean_{j≠i} Q̃^j at the start of the same episode − E_t), E_t as in "trial". Over
    the tokens x of action k that decide which of the others' actions it becomes,
    CV_k = Σ_x (r̂(x) − Σ_y π(y | what stood before x) r̂(y)): r̂ is the mean reward of the decided
    action in the other rollouts, y runs over the tokens that would decide for one, and every other
    token counts as the lower median of those means. Only actions that the others took at least
    twice are used, so without repeated actions (or without `choices` in the table) the result is
    that of "trial", bit by bit. `gamma` and `trial_gamma` discount CV_k as they do the reward.

    Bias: none for gamma = trial_gamma = 1: given everything before k, and the other rollouts, CV_k
    has mean 0, and the baseline only uses other rollouts' actions. Where the probabilities are not
    exactly those that the actions were sampled with, their difference biases it.
    Source: a trajectory-wise control variate (Cheng, Yan and Boots 2019, arXiv 1908.03263) whose
    action values come from the group.
    """
    luck = action_luck(table)
    calm = replace(table, reward=table.reward - luck)
    own = table.score_weight * luck
    to_go = trial_returns(calm, gamma, trial_gamma) + own
    # The others' luck is computed from this rollout's actions, too: a baseline must not have it.
    return less_expected(table, to_go, trial_returns(table, gamma, trial_gamma))


def action_luck(table: StepTable) -> Floats:
    """How much more than expected each action earned, as far as the group's other rollouts know
    (CV_k), shape (N,); 0 for steps without choices."""
    luck = np.zeros(len(table.reward))
    live = np.flatnonzero(table.live[table.rollout])
    by_group: dict[int, list[int]] = {}
    for k in live[_has_choices(table)[live]]:
        by_group.setdefault(int(table.group[table.rollout[k]]), []).append(int(k))
    for group, steps in by_group.items():
        earnings = _Earnings(table, live[table.group[table.rollout[live]] == group])
        for k in steps:
            worth = earnings.of_others(int(table.rollout[k]))
            luck[k] = luck_of(worth, table.action[k], table.choices[k])
    return luck


def _has_choices(table: StepTable) -> Flags:
    return np.array([bool(choices) for choices in table.choices], dtype=np.bool_)


class _Earnings:
    """How often each action was taken in a group, and what it earned, by rollout."""

    def __init__(self, table: StepTable, steps: Ints) -> None:
        self._times: dict[int, Counter[Action]] = {}
        self._rewards: dict[int, dict[Action, float]] = {}
        for k in steps:
            owner, action = int(table.rollout[k]), table.action[k]
            self._times.setdefault(owner, Counter())[action] += 1
            rewards = self._rewards.setdefault(owner, {})
            rewards[action] = rewards.get(action, 0.0) + float(table.reward[k])
        self._worth: dict[int, Worth] = {}

    def of_others(self, owner: int) -> "Worth":
        """What each action that the other rollouts took at least twice earned on average, minus
        the lower median of these means."""
        if owner not in self._worth:
            others = [other for other in self._times if other != owner]
            times = sum((self._times[other] for other in others), Counter[Action]())
            means = {
                action: sum(self._rewards[other].get(action, 0.0) for other in others) / number
                for action, number in times.items()
                if action and number > 1
            }
            middle = median_low(means.values()) if means else 0.0
            self._worth[owner] = {action: mean - middle for action, mean in means.items()}
        return self._worth[owner]


def luck_of(worth: Worth, action: Action, choices: Choices) -> float:
    """Σ over the deciding tokens of an action: its worth minus the expected one."""
    luck = 0.0
    for position, (token, chances) in enumerate(zip(action, choices, strict=False)):
        deciding = _deciding_tokens(worth, action[:position])
        if deciding is None:
            continue
        expected = sum(chances[other] * value for other, value in deciding.items())
        luck += deciding.get(token, 0.0) - expected
    return luck


def _deciding_tokens(worth: Worth, prefix: Action) -> dict[int, float] | None:
    """Next token → the worth of the only action that begins so; None if a token leaves several."""
    size = len(prefix)
    values: dict[int, float] = {}
    for action, value in worth.items():
        if action[:size] != prefix or len(action) == size:
            continue
        if action[size] in values:
            return None
        values[action[size]] = value
    return values


ESTIMATOR = Estimator(
    name="trial_cv",
    help='as "trial", minus the luck of later actions that other rollouts of the group also took',
    assign=trial_cv,
    reads_choices=True,
    variants=(Variant(options={}, error=0.0, turned=0.0),),
)
