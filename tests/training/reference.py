"""Loss and gradients written from the formulas, in float64, one row at a time by plain autograd.

An independent second opinion: it shares no code with agentsgym, knows no chunks, padding, windows
or ranks, and takes nothing but plain lists.
"""

import math
from dataclasses import dataclass, field

import torch


@dataclass
class Row:
    """Token ids, 1 on agent tokens, their advantages, the step number of each (any value off
    agent tokens), and log-probabilities of sampler, old policy, reference and teacher (or None);
    and by place the ids that a token was chosen from, if not all."""

    ids: list[int]
    mask: list[int]
    advantages: list[float]
    steps: list[int]
    sampler: list[float] | None = None
    old: list[float] | None = None
    ref: list[float] | None = None
    teacher: list[float] | None = None
    supports: dict[int, list[int]] = field(default_factory=dict)


@dataclass
class Loss:
    """The formula's settings."""

    kind: str
    scope: str = "token"
    low: float = 0.2
    high: float = 0.2
    delta: float | None = None
    cap: float | None = None
    beta: float = 0.0
    correct_kl: bool = True
    entropy: float = 0.0
    norm: float = 1.0
    tau: tuple[float, float] = (1.0, 1.05)
    vespo: tuple[float, float, float, float] = (2.0, 3.0, 3.0, 2.0)
    temperature: float = 1.0
    distill: str | None = None
    distill_weight: float = 1.0
    alone: bool = False
    masks: dict[str, list[float]] = field(default_factory=dict)


def log_probabilities(model, ids, temperature=1.0, supports=None):
    """log p(token t | tokens before t) and the entropy of that distribution, shape (T,); the
    first token has neither. `supports` has the ids that some tokens were chosen from."""
    logits = model(input_ids=torch.tensor([ids])).logits[0] / temperature
    zero = logits.new_zeros(())
    chosen, entropy = [zero], [zero]
    for t in range(1, len(ids)):
        options = (supports or {}).get(t, range(logits.shape[-1]))
        if min(options) < 0:
            one, other = _among_wholes(model, ids, t, options, temperature)
            chosen.append(one)
            entropy.append(other)
            continue
        chances = torch.softmax(logits[t - 1], -1)[list(options)]
        chances = chances / chances.sum()
        chosen.append(torch.log(chances[list(options).index(ids[t])]))
        entropy.append(-(chances * torch.log(chances)).sum())
    return torch.stack(chosen), torch.stack(entropy)


def _among_wholes(model, ids, t, options, temperature):
    """The same of the answer that begins at t and was chosen as a whole; each of the answers, which
    have -1 after them in `options`, is read by itself."""
    answers, rest = [], list(options)
    while rest:
        end = rest.index(-1)
        answers.append(rest[:end])
        rest = rest[end + 1 :]
    totals = []
    for answer in answers:
        logits = model(input_ids=torch.tensor([ids[:t] + answer])).logits[0] / temperature
        logps = torch.log(torch.softmax(logits, -1))
        totals.append(sum(logps[t + k - 1, token] for k, token in enumerate(answer)))
    chances = torch.stack(totals).exp() / torch.stack(totals).exp().sum()
    taken = next(k for k, answer in enumerate(answers) if ids[t : t + len(answer)] == answer)
    return torch.log(chances[taken]), -(chances * torch.log(chances)).sum()


def scores_of(model, row, settings):
    """The same of a row's tokens."""
    return log_probabilities(model, row.ids, settings.temperature, row.supports)


def loss_of(model, rollouts, settings):
    """The loss of one optimizer step on `rollouts`, each a list of `Row`s."""
    counts = [sum(sum(row.mask) for row in rows) for rows in rollouts]
    live = len(rollouts)
    total = torch.zeros((), dtype=torch.float64)
    for rows, tokens in zip(rollouts, counts, strict=True):
        divisor = {
            "grpo": live * max(tokens, 1),
            "sapo": live * max(tokens, 1),
            "dapo": sum(counts),
            "cispo": sum(counts),
            "vespo": sum(counts),
            "dr_grpo": live * settings.norm,
            "luspo": live,
        }[settings.kind]
        total = total + sum(_token_losses(model, rows, settings)) / divisor
        if settings.distill:
            distance = sum(_distilled(model, row, settings) for row in rows)
            total = total + settings.distill_weight * distance / sum(counts)
        if settings.entropy:
            for row in rows:
                entropy = scores_of(model, row, settings)[1]
                mask = torch.tensor(row.mask, dtype=torch.float64)
                total = total - settings.entropy * (entropy * mask).sum() / sum(counts)
    return total


def _distilled(model, row, s):
    """The distance to the teacher of a row's agent tokens, with the gradients of the two KLs: the
    score function times log-ratio, or times one minus the teacher's ratio."""
    logps, _ = scores_of(model, row, s)
    total = torch.zeros((), dtype=torch.float64)
    for t, agent in enumerate(row.mask):
        if not agent:
            continue
        now = float(logps[t].detach())
        old = now if row.old is None else row.old[t]
        ratio, gap = math.exp(now - old), row.teacher[t] - now
        if s.distill == "reverse":
            value, slope = math.exp(gap) - 1 - gap, -gap
        else:
            value, slope = gap * math.exp(gap) - math.exp(gap) + 1, 1 - math.exp(gap)
        if s.cap is not None and row.sampler is not None:
            ratio *= min(math.exp(old - row.sampler[t]), s.cap)
        total = total + ratio * (value + slope * (logps[t] - logps[t].detach()))
    return total


def _token_losses(model, rows, settings):
    """The loss of each agent token of a rollout."""
    spoken = []
    for row in rows:
        logps, _ = scores_of(model, row, settings)
        for t, agent in enumerate(row.mask):
            if agent:
                now = logps[t]
                old = float(now.detach()) if row.old is None else row.old[t]
                spoken.append((row, t, now, old))
    differences = [float(now.detach()) - old for _, _, now, old in spoken]
    for (row, t, now, old), own in zip(spoken, differences, strict=True):
        if settings.scope == "token":
            scope = [own]
        elif settings.scope == "step":
            scope = [
                d
                for (r, k, _, _), d in zip(spoken, differences, strict=True)
                if r.steps[k] == row.steps[t]
            ]
        else:
            scope = differences
        value = math.exp(sum(scope) / len(scope))
        # The value of the scope's ratio with the gradient of the token's own.
        ratio = value * torch.exp(now - now.detach())
        masked = _masked(spoken, (row, t), settings.masks)
        yield _one(row, t, now, old, ratio, sum(differences), settings, masked)


def _masked(spoken, place, masks):
    """Whether one of the masks leaves out the token at (row, t)."""
    row, t = place
    policy, sampler = next(
        (math.exp(float(now.detach())), math.exp(r.sampler[k]))
        for r, k, now, _ in spoken
        if r is row and k == t
    )
    moved = policy - sampler if row.advantages[t] > 0 else sampler - policy
    values = {"icepop": policy / sampler, "dppo": moved}
    return any(
        values[name] > bounds[-1] or (len(bounds) == 2 and values[name] < bounds[0])
        for name, bounds in masks.items()
    )


def _one(row, t, now, old, ratio, summed, s, masked):
    advantage, size = row.advantages[t], float(ratio.detach())
    if s.kind == "cispo":
        loss = -min(size, s.high) * advantage * now
    elif s.kind == "sapo":
        tau = s.tau[0] if advantage > 0 else s.tau[1]
        loss = -4 / tau / (1 + torch.exp(-tau * (ratio - 1))) * advantage
    elif s.kind == "vespo":
        k, rate = s.vespo[:2] if advantage >= 0 else s.vespo[2:]
        whole = math.exp(min(max(summed, math.log(1e-8)), 20.0))
        loss = -math.exp(rate) * whole**k * math.exp(-rate * whole) * advantage * now
    else:
        clipped = min(max(size, 1 - s.low), 1 + s.high)
        free = ratio if s.delta is None or size <= s.delta else s.delta
        inside = 1 - s.low <= size <= 1 + s.high
        bounded = ratio if inside else clipped
        one, two = free * advantage, bounded * advantage
        loss = -torch.minimum(torch.as_tensor(one), torch.as_tensor(two))
    loss = torch.as_tensor(loss, dtype=torch.float64) * (0.0 if s.alone else 1.0)
    if s.cap is not None and row.sampler is not None:
        loss = loss * min(math.exp(old - row.sampler[t]), s.cap)
    if masked:
        loss = loss * 0.0
    if s.beta:
        gap = row.ref[t] - now
        kl = torch.exp(gap) - gap - 1
        loss = loss + s.beta * (kl * ratio if s.correct_kl else kl)
    return loss


def gradient_of(model, rollouts, settings):
    """Loss and gradient, the latter as one flat float64 vector; the model's own is left alone."""
    loss = loss_of(model, rollouts, settings)
    parameters = list(model.parameters())
    parts = torch.autograd.grad(loss, parameters, allow_unused=True)
    flat = [
        (torch.zeros_like(p) if g is None else g).reshape(-1)
        for p, g in zip(parameters, parts, strict=True)
    ]
    return float(loss.detach()), torch.cat(flat)


def grpo(rewards_by_group, scaled):
    """(R − mean) / (std + 1e-4), or without the divisor, for each reward of each group."""
    result = []
    for rewards in rewards_by_group:
        mean = sum(rewards) / len(rewards)
        deviation = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
        result.append([(r - mean) / (deviation + 1e-4 if scaled else 1.0) for r in rewards])
    return result


def step_return(groups):
    """Return-to-go minus the mean of others at the same step; `groups[g][i]` lists rewards."""
    result = []
    for rollouts in groups:
        to_go = [[sum(steps[t:]) for t in range(len(steps))] for steps in rollouts]
        group = []
        for i, own in enumerate(to_go):
            numbers = []
            for t, value in enumerate(own):
                others = [o[t] for j, o in enumerate(to_go) if j != i and len(o) > t]
                numbers.append(value - (sum(others) / len(others) if others else 0.0))
            group.append(numbers)
        result.append(group)
    return result


def trial(groups):
    """`groups[g][i][e]` lists the rewards of episode e; everything is scored, and the return is the
    mean over the episodes."""
    result = []
    for rollouts in groups:
        to_go = [
            [
                [
                    (sum(steps[t:]) + sum(map(sum, episodes[e + 1 :]))) / len(episodes)
                    for t in range(len(steps))
                ]
                for e, steps in enumerate(episodes)
            ]
            for episodes in rollouts
        ]
        group = []
        for i, own in enumerate(to_go):
            episodes = []
            for e, numbers in enumerate(own):
                others = [o[e][0] for j, o in enumerate(to_go) if j != i]
                mean = sum(others) / len(others)
                before = [_earned_before(rollouts, i, e, t) for t in range(len(numbers))]
                episodes.append([q - (mean - b) for q, b in zip(numbers, before, strict=True)])
            group.append(episodes)
        result.append(group)
    return result


def _earned_before(rollouts, i, e, t):
    """What the others that reached step t of episode e had earned in it before, on average, of the
    final reward; if none reached it, of the last step that one reached."""
    while True:
        reached = [o for j, o in enumerate(rollouts) if j != i and len(o[e]) > t]
        if reached:
            return sum(sum(o[e][:t]) / len(o) for o in reached) / len(reached)
        t -= 1


def trial_cv(groups, actions, chances):
    """As `trial`, minus the luck of later actions. `actions[g][i][e][t]` are the token ids of a
    step, `chances[g][i][e][t][n]` the probabilities of all tokens in place of its n-th."""
    lucky = []
    for rollouts, taken, chance in zip(groups, actions, chances, strict=True):
        group = []
        for i, episodes in enumerate(taken):
            earned = {}
            for j, other in enumerate(taken):
                for e, steps in enumerate(other):
                    for t, action in enumerate(steps):
                        if j != i:
                            earned.setdefault(tuple(action), []).append(rollouts[j][e][t])
            means = {a: sum(r) / len(r) for a, r in earned.items() if len(r) > 1}
            middle = sorted(means.values())[(len(means) - 1) // 2] if means else 0.0
            group.append(
                [
                    [_luck(a, chance[i][e][t], means, middle) for t, a in enumerate(steps)]
                    for e, steps in enumerate(episodes)
                ]
            )
        lucky.append(group)
    result = []
    for rollouts, luck in zip(groups, lucky, strict=True):
        flat = [[r for steps in episodes for r in steps] for episodes in rollouts]
        lost = [[c for steps in episodes for c in steps] for episodes in luck]
        to_go = [
            [(sum(own[t:]) - sum(less[t + 1 :])) / len(episodes) for t in range(len(own))]
            for own, less, episodes in zip(flat, lost, rollouts, strict=True)
        ]
        starts = [_starts(episodes) for episodes in rollouts]
        group = []
        for i, episodes in enumerate(rollouts):
            numbers = []
            for e, steps in enumerate(episodes):
                others = [to_go[j][starts[j][e]] for j in range(len(rollouts)) if j != i]
                mean = sum(others) / len(others)
                numbers.append(
                    [
                        to_go[i][starts[i][e] + t] - (mean - _earned_before(rollouts, i, e, t))
                        for t in range(len(steps))
                    ]
                )
            group.append(numbers)
        result.append(group)
    return result


def _starts(episodes):
    return [sum(map(len, episodes[:e])) for e in range(len(episodes))]


def _luck(action, chance, means, middle):
    """What the deciding tokens of an action earned more than expected."""
    luck = 0.0
    for n, token in enumerate(action):
        begun = [a for a in means if len(a) > n and list(a[:n]) == list(action[:n])]
        if len({a[n] for a in begun}) < len(begun):
            continue
        worth = {a[n]: means[a] - middle for a in begun}
        luck += worth.get(token, 0.0) - sum(float(chance[n][v]) * w for v, w in worth.items())
    return luck
