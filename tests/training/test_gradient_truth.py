"""The trainer's loss and gradient against an independent reference in float64, and against TRL's.

The grid runs on random rollouts with random advantages per token; the last cells run from playing
to the gradient. Two processes are in test_two_processes.py.
"""

import inspect
import itertools
import random
from dataclasses import replace

import pytest
import torch
from trl import GRPOTrainer

from agentsgym.envs import task_dataset
from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.loss.ratios import RATIO_SCOPES
from agentsgym.training.trl_base import TRL_HAS_HEAD
from training import reference
from training.cells import NORM, Cell, LettersEnv

OF_TRL = [name for name in LOSSES if f'"{name}"' in inspect.getsource(GRPOTrainer)]

TOLERANCE = 1e-5


def window(trainer):
    """Loss and gradient of the micro-batches of one optimizer step."""
    trainer.model.zero_grad()
    loss = sum(
        float(trainer.training_step(trainer.model, []))
        for _ in range(trainer.args.gradient_accumulation_steps)
    )
    return loss, torch.cat([p.grad.reshape(-1) for p in trainer.model.parameters()])


def settings_of(trainer, **changes):
    """The reference's settings for a trainer's arguments."""
    args = trainer.args
    settings = reference.Loss(
        args.loss_type,
        args.ratio_scope,
        args.epsilon,
        args.epsilon_high,
        delta=args.delta,
        cap=args.sampler_cap if args.sampler_correction == "truncate" else None,
        entropy=args.entropy_coef,
        norm=NORM,
        temperature=args.temperature,
        masks=args.off_policy_masks,
    )
    return replace(settings, **changes)


def distance(one, other):
    return float((one - other).norm() / other.norm())


def agrees(trainer, cell, **changes):
    """Assert that loss and gradient are the reference's."""
    loss, gradient = window(trainer)
    expected, truth = reference.gradient_of(
        trainer.model, cell.for_reference(), settings_of(trainer, **changes)
    )
    assert truth.norm() > 1e-3
    assert distance(gradient, truth) < TOLERANCE
    assert loss == pytest.approx(expected, rel=1e-4, abs=1e-6)


BINARY = (("rollout", "steps"), (1, 2), ("right", "left"), (True, False))


def covers_pairs(cells):
    """Whether each two columns hold every pair of their values."""
    columns = [sorted(set(column), key=str) for column in zip(*cells, strict=True)]
    return all(
        {(c[a], c[b]) for c in cells} == set(itertools.product(columns[a], columns[b]))
        for a, b in itertools.combinations(range(len(columns)), 2)
    )


def search_grid():
    """Cells (loss, scope, train_on, accumulation steps, padding side, off-policy) that hold every
    pair of values, each loss with each scope once.

    Of a loss's cells all but one have the first value of a binary factor; which one has the other
    is drawn per loss and factor, until all pairs are there (one draw in three does).
    """
    draw = random.Random(0)
    while True:
        cells = []
        for loss in LOSSES:
            odd = [draw.randrange(len(RATIO_SCOPES)) for _ in BINARY]
            for k, scope in enumerate(RATIO_SCOPES):
                factors = (v[o == k] for v, o in zip(BINARY, odd, strict=True))
                cells.append((loss, scope, *factors))
        if covers_pairs(cells):
            return cells


GRID = search_grid()


@pytest.mark.parametrize(("loss", "scope", "train_on", "accumulation", "side", "off"), GRID)
def test_grid(
    make_exact, chat_tokenizer, tiny_llama, loss, scope, train_on, accumulation, side, off
):
    cell = Cell(
        tiny_llama.double(), 8, seed=list(LOSSES).index(loss), train_on=train_on, off_policy=off
    )
    trainer = make_exact(
        cell,
        loss_type=loss,
        ratio_scope=scope,
        train_on=train_on,
        per_device_train_batch_size=8 // accumulation,
        gradient_accumulation_steps=accumulation,
        num_iterations=2 if off else 1,
        max_tokens_per_forward=60,
    )
    trainer._tokenizer.padding_side = side
    try:
        agrees(trainer, cell)
    finally:
        trainer._tokenizer.padding_side = "right"


@pytest.mark.parametrize(
    "options",
    [
        {"delta": 1.4},
        {"entropy_coef": 0.1},
        {"sampler_correction": "none"},
        {"temperature": 0.7},
        {"beta": 0.1},
        {"beta": 0.1, "off_policy_masks": {"icepop": [0.8, 1.3]}},
        {"beta": 0.1, "ratio_scope": "step", "use_bias_correction_kl": False},
    ],
    ids=str,
)
def test_other_terms(make_exact, tiny_llama, options):
    options = dict(options)
    beta = options.pop("beta", 0.0)
    cell = Cell(tiny_llama.double(), 8)
    trainer = make_exact(cell, num_iterations=2, loss_type="dapo", **options)
    trainer.args.beta = beta
    agrees(trainer, cell, beta=beta, correct_kl=trainer.args.use_bias_correction_kl)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("direction", ["reverse", "forward"])
@pytest.mark.parametrize("options", [{}, {"sampler_correction": "none", "loss_type": "grpo"}])
def test_distillation(make_exact, tiny_llama, direction, alone, options):
    """Over its own count of tokens, also where the policy's loss has another one."""
    cell = Cell(tiny_llama.double(), 8)
    cell.taught = True
    trainer = make_exact(cell, num_iterations=2, **options)
    given = {"distillation": direction, "distillation_weight": 0.7, "policy_gradient": not alone}
    for name, value in given.items():
        setattr(trainer.args, name, value)
    agrees(trainer, cell, distill=direction, distill_weight=0.7, alone=alone)


# -- from playing to the gradient -----------------------------------------------------------------


def rewards_by_step(trainer, rollouts):
    """(group, index) → rewards per episode, from what was played."""
    return {
        (r.played.group, r.played.index): [
            [step.reward for step in episode.steps] for episode in r.played.episodes
        ]
        for r in rollouts
    }


def by_reference(estimator, played, scaled):
    """(group, index) → numbers per episode and step."""
    groups = sorted({group for group, _ in played})
    members = {g: sorted(i for group, i in played if group == g) for g in groups}
    nested = [[played[g, i] for i in members[g]] for g in groups]
    if estimator == "grpo":
        final = [
            [sum(map(sum, episodes)) / len(episodes) for episodes in group] for group in nested
        ]
        numbers = [
            [[[a] * len(e) for e in episodes] for a, episodes in zip(values, group, strict=True)]
            for values, group in zip(reference.grpo(final, scaled), nested, strict=True)
        ]
    elif estimator == "trial":
        numbers = reference.trial(nested)
    else:
        flat = [[episodes[0] for episodes in group] for group in nested]
        returns = reference.step_return(flat)
        numbers = [[[steps] for steps in group] for group in returns]
    return {(g, i): numbers[a][b] for a, g in enumerate(groups) for b, i in enumerate(members[g])}


def as_reference(rollouts, numbers, old=None):
    result = []
    for r in rollouts:
        rows = []
        for row in r.played.rows:
            advantages, steps = [0.0] * len(row.token_ids), [-1] * len(row.token_ids)
            for span in row.spans:
                value = numbers[r.played.group, r.played.index][span.episode][span.step]
                advantages[span.start : span.stop] = [value] * span.length
                steps[span.start : span.stop] = [(span.episode, span.step)] * span.length
            rows.append(
                reference.Row(
                    list(row.token_ids),
                    list(row.agent_token_mask),
                    advantages,
                    steps,
                    list(row.logprobs),
                    None if old is None else old[tuple(row.token_ids)],
                )
            )
        result.append(rows)
    return result


END_TO_END = [
    ("grpo", "grpo", "rollout", 1, 1),
    ("grpo", "dapo", "steps", 2, 1),
    ("step_return", "luspo", "rollout", 2, 2),
    ("step_return", "dr_grpo", "steps", 1, 2),
    ("step_return", "cispo", "rollout", 1, 2),
    ("trial", "dapo", "rollout", 1, 2),
]


@pytest.mark.parametrize(
    ("estimator", "loss", "train_on", "accumulation", "iterations"), END_TO_END
)
def test_from_playing_to_the_gradient(
    make_exact, chat_tokenizer, estimator, loss, train_on, accumulation, iterations
):
    from agentsgym import register

    register("Letters", LettersEnv)
    trials = {"episodes_per_trial": 2, "carry": "full"} if estimator == "trial" else {}
    env = LettersEnv(chat_tokenizer, trials)
    trainer = make_exact(
        env=env,
        dataset=task_dataset(env, [{"rewards": [0.0] * (1 + k % 3)} for k in range(4)]),
        advantage_estimator=estimator,
        loss_type=loss,
        train_on=train_on,
        per_device_train_batch_size=8 // accumulation,
        gradient_accumulation_steps=accumulation,
        num_iterations=iterations,
    )
    scaled = loss == "grpo"
    trainer.args.scale_rewards = "group" if scaled else "none"
    loss_value, gradient = window(trainer)
    rollouts = [r for micro in trainer._buffered_inputs for r in micro["rollouts"]]
    assert len(rollouts) == 8
    numbers = by_reference(estimator, rewards_by_step(trainer, rollouts), scaled)
    settings = settings_of(trainer)
    expected, truth = reference.gradient_of(
        trainer.model, as_reference(rollouts, numbers), settings
    )
    assert distance(gradient, truth) < TOLERANCE
    assert loss_value == pytest.approx(expected, rel=1e-4, abs=1e-6)
    if iterations == 1:
        return
    # The same rollouts again, after the weights have moved.
    with torch.no_grad():
        old = {
            tuple(row.token_ids): reference.log_probabilities(trainer.model, list(row.token_ids))[
                0
            ].tolist()
            for r in rollouts
            for row in r.played.rows
        }
        generator = torch.Generator().manual_seed(1)
        for p in trainer.model.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    _, gradient = window(trainer)
    _, truth = reference.gradient_of(trainer.model, as_reference(rollouts, numbers, old), settings)
    assert distance(gradient, truth) < TOLERANCE


# -- against TRL ----------------------------------------------------------------------------------


def padded(parts, left=False):
    length = max(map(len, parts))
    rows = [
        [0] * (length - len(p)) + list(p) if left else list(p) + [0] * (length - len(p))
        for p in parts
    ]
    return torch.tensor(rows)


def for_trl(rows):
    """TRL's batch of reference rows: prompts padded on the left, completions on the right."""
    starts = [row.mask.index(1) if 1 in row.mask else 1 for row in rows]

    def completions(name):
        return padded([getattr(row, name)[s:] for row, s in zip(rows, starts, strict=True)])

    prompts = [row.ids[:s] for row, s in zip(rows, starts, strict=True)]
    return {
        "prompt_ids": padded(prompts, left=True),
        "prompt_mask": padded([[1] * len(p) for p in prompts], left=True),
        "completion_ids": completions("ids"),
        "completion_mask": padded(
            [[1] * len(row.ids[s:]) for row, s in zip(rows, starts, strict=True)]
        ),
        "tool_mask": completions("mask"),
        "advantages": completions("advantages"),
        "old_per_token_logps": completions("old"),
        "ref_per_token_logps": completions("ref"),
        "num_items_in_batch": torch.tensor(float(sum(sum(row.mask) for row in rows))),
    }


def words_and_chances(model, played, temperature):
    """Per episode and step of a rollout: its token ids, and the probabilities of all tokens in
    place of each."""
    words, chances = ([[None] * len(e.steps) for e in played.episodes] for _ in range(2))
    for row in played.rows:
        logits = model(input_ids=torch.tensor([row.token_ids.tolist()])).logits[0] / temperature
        table = torch.softmax(logits, -1)
        for span in row.spans:
            words[span.episode][span.step] = tuple(row.token_ids[span.start : span.stop])
            chances[span.episode][span.step] = table[span.start - 1 : span.stop - 1]
    return words, chances


def flat(numbers):
    return torch.tensor([n for g in numbers for r in g for e in r for n in e])


def test_choices_from_playing_to_the_gradient(make_exact, chat_tokenizer):
    """At a low temperature, actions of two tokens repeat."""
    from agentsgym import register

    register("Letters", LettersEnv)
    env = LettersEnv(chat_tokenizer, {"episodes_per_trial": 2})
    trainer = make_exact(
        env=env,
        dataset=task_dataset(env, [{"rewards": [0.0, 0.0]} for k in range(4)]),
        advantage_estimator="trial_cv",
        loss_type="dapo",
        temperature=0.02,
        max_action_tokens=2,
    )
    loss_value, gradient = window(trainer)
    rollouts = [r for micro in trainer._buffered_inputs for r in micro["rollouts"]]
    by_key = {(r.played.group, r.played.index): r.played for r in rollouts}
    groups = [[by_key[g, i] for i in range(4)] for g in sorted({g for g, _ in by_key})]
    earned = [[[[s.reward for s in e.steps] for e in r.episodes] for r in g] for g in groups]
    with torch.no_grad():
        spoken = [[words_and_chances(trainer.model, r, 0.02) for r in g] for g in groups]
    actions, chances = ([[r[part] for r in g] for g in spoken] for part in (0, 1))
    credit = reference.trial_cv(earned, actions, chances)
    assert max(flat(credit) - flat(reference.trial(earned))) > 0.01
    numbers = {
        (g[0].group, i): own[i] for g, own in zip(groups, credit, strict=True) for i in range(4)
    }
    expected, truth = reference.gradient_of(
        trainer.model, as_reference(rollouts, numbers), settings_of(trainer)
    )
    assert distance(gradient, truth) < TOLERANCE
    assert loss_value == pytest.approx(expected, rel=1e-4, abs=1e-6)


# TRL before 1.10 averages "luspo" over unmasked tokens and multiplies by the length.
COMPARED = [name for name in OF_TRL if name != "luspo" or TRL_HAS_HEAD]


@pytest.mark.parametrize("loss", COMPARED)
@pytest.mark.parametrize("scope", ["token", "rollout"])
def test_our_loss_is_trls_where_both_apply(make_exact, tiny_llama, loss, scope):
    """One row per rollout, none failed. TRL's "sequence" level is our scope "rollout" where the
    advantage is the same on all tokens of a rollout; KL is compared at token level, because TRL's
    correction then has the sequence's ratio also in the gradient."""
    cell = Cell(tiny_llama.double(), 8, rows=(1,))
    cell.rollouts = [r for r in cell.rollouts if r.agent_tokens]
    for name in ("advantages", "old", "ref"):
        setattr(cell, name, getattr(cell, name)[: len(cell.rollouts)])
    if scope == "rollout":
        cell.advantages = [0 * a + (-1) ** k * (k + 1) for k, a in enumerate(cell.advantages)]
        cell.advantages = [
            a * r.rows[0].agent_token_mask
            for a, r in zip(cell.advantages, cell.rollouts, strict=True)
        ]
    trainer = make_exact(
        cell, loss_type=loss, ratio_scope=scope, num_iterations=2, sampler_correction="none"
    )
    beta = 0.1 if scope == "token" else 0.0
    trainer.args.beta = beta
    loss_value, ours = window(trainer)
    trainer.beta = beta
    trainer.importance_sampling_level = {"token": "token", "rollout": "sequence"}[scope]
    trainer.max_completion_length = NORM
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.zero_grad()
    (rows,) = zip(*cell.for_reference(), strict=True)
    value = GRPOTrainer._compute_loss(trainer, trainer.model, for_trl(rows))
    value.backward()
    theirs = torch.cat([p.grad.reshape(-1) for p in trainer.model.parameters()])
    assert distance(ours, theirs) < TOLERANCE
    assert loss_value == pytest.approx(float(value.detach()), rel=1e-4)


# -- TRL's private shapes -------------------------------------------------------------------------


def test_prepare_inputs_generates_once_and_hands_out_each_rollout_once_per_iteration(
    make_exact, tiny_llama
):
    made = []
    cell = Cell(tiny_llama.double(), 8)
    trainer = make_exact(
        per_device_train_batch_size=4, gradient_accumulation_steps=2, num_iterations=2
    )

    def generate(inputs):
        made.append(cell.for_trainer())
        return made[-1]

    trainer._generate_and_score_completions = generate
    seen = []
    for step in range(5):
        trainer._step = step
        seen += [sorted(int(i) for i in trainer._prepare_inputs([])["rollout_index"])]
    assert len(made) == 2
    assert sorted(seen[0] + seen[1]) == sorted(seen[2] + seen[3]) == list(range(8))
    assert seen[:2] == seen[2:4]
