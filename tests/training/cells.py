"""Random rollouts for the trainer, and the same as the reference takes them."""

import random
from dataclasses import replace

import numpy as np
import torch

from agentsgym.training.loss.batch import make_rollouts
from agentsgym.types.choices import Choices
from agentsgym.types.supports import Supports, compact, is_wide, mask_of
from helpers import CountdownEnv
from of_rows import Drawn, episode_of, rollout_of, step_of, with_logprobs
from training import reference

QUICK = {
    "num_generations": 4,
    "max_action_tokens": 4,
    "logging_steps": 1,
    "report_to": "none",
    "use_cpu": True,
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "disable_tqdm": True,
    "max_grad_norm": 0.0,
}
"""Options of a trainer that makes many steps in a test."""


def random_rollouts(number, vocabulary, seed=0, rows=(1, 2)):
    """`number` rollouts of one or two rows with one to three steps. The last but one failed, the
    last one said nothing."""
    draw = random.Random(seed)
    result = []
    for index in range(number):
        failed, silent = index == number - 2, index == number - 1
        number_of_steps = 0
        parts = []
        for _ in range(draw.choice(rows)):
            ids, spans = [], []
            for _ in range(1 if silent else draw.randint(1, 3)):
                seen, tokens = draw.randint(0 if ids else 2, 4), draw.randint(1, 4) * (not silent)
                start = len(ids) + seen
                ids += [draw.randrange(4, vocabulary) for _ in range(seen + tokens)]
                spans.append((0, number_of_steps, start, len(ids)))
                number_of_steps += 1
            parts.append(Drawn(ids, spans))
        error = "boom" if failed else None
        result.append(rollout_of(rows=parts, index=index, error=error))
    return result


def random_supports(rollout, vocabulary, seed):
    """For the first token of an answer, and three of four others, the ids that it was chosen from:
    one to six of them, or in one of four all but some, which may be those of the token before.
    (TRL's head, which scores rows without any, computes in float32.)"""
    draw, sets, lacks = random.Random(seed), [], []
    for _, acts, stop in rollout.at.tolist():
        for place in range(acts, stop):
            others = draw.sample(range(vocabulary), draw.choice([0, 0, 1, 5]))
            if draw.random() < 0.25:
                lacks = draw.choice([lacks, draw.sample(range(vocabulary), 6)])
                mask = np.ones(vocabulary, np.bool_)
                mask[[n for n in lacks if n != rollout.token_ids[place]]] = False
                sets.append((place, compact(mask)))
            elif draw.random() < 0.75 or place == acts:
                sets.append((place, sorted({int(rollout.token_ids[place]), *others})))
    return Supports.of(sets)


def known_ids(supports, vocabulary):
    """The ids of each token that has a support, or the answers, as lists."""
    return {
        t: np.flatnonzero(mask_of(ids, vocabulary)).tolist() if is_wide(ids) else ids.tolist()
        for t, ids in supports
    }


def random_wholes(rollout, vocabulary, seed):
    """For the first answer of a row, and three of four others, those that it was chosen from as a
    whole: up to five more of one to four tokens, some of which begin alike."""
    draw, sets = random.Random(seed), []
    for step, (_, acts, stop) in zip(rollout.nodes, rollout.at.tolist(), strict=True):
        own = tuple(rollout.token_ids[acts:stop].tolist())
        if not own or (draw.random() < 0.25 and not step.whole):
            continue
        answers = {own}
        for _ in range(5):
            kept = draw.choice(sorted(answers))[: draw.randint(0, 2)]
            made = (*kept, *(draw.randrange(vocabulary) for _ in range(draw.randint(1, 2))))
            alike = (a[: len(made)] == made or made[: len(a)] == a for a in answers)
            if not any(alike):
                answers.add(made)
        sets.append((acts, Choices.of(answers).support))
        sets += [(acts + k, [token]) for k, token in enumerate(own) if k]
    return Supports.of(sets)


def trial_of(index, *actions, free_shots=0, failed=False):
    """A rollout of one-step episodes in one row: two tokens of context before each action, whose
    reward is the sum of its tokens' ids over 10."""
    ids, spans = [], []
    for number, action in enumerate(actions):
        ids += [5, 6, *action]
        spans.append((number, 0, len(ids) - len(action), len(ids)))
    episodes = [
        episode_of(step_of(reward=sum(a) / 10, done=True), index=e, weight=float(e >= free_shots))
        for e, a in enumerate(actions)
    ]
    error = "boom" if failed else None
    return rollout_of(episodes, [Drawn(ids, spans)], index=index, error=error)


NORM = 37
"""`loss_norm_tokens` where a loss needs it."""


class LettersEnv(CountdownEnv):
    """Each step earns by what was said, so that steps of a group differ."""

    def _step_episode(self, session_id, state, action):
        state, _, done, info = super()._step_episode(session_id, state, action)
        return state, sum(map(ord, action)) % 7 / 7, done, info


class Cell:
    """Rollouts with random advantages of shape (T,) per row, and random log-probabilities of the
    sampler, the old policy, the reference and, if it is `taught`, the teacher near the model's
    own. With `choosy`, many tokens were chosen from some ids only, some of them from one; if it is
    "whole", answers as wholes."""

    taught = False

    def __init__(
        self,
        model,
        number=8,
        seed=0,
        train_on="rollout",
        off_policy=True,
        rows=(1, 2),
        choosy=False,
    ):
        generator = torch.Generator().manual_seed(seed)

        def noise(size, scale):
            return scale * torch.randn(size, generator=generator, dtype=torch.float64)

        self.train_on, self.vocabulary = train_on, model.config.vocab_size
        self.off_policy = off_policy
        self.rollouts = []
        self.advantages = []
        self.old, self.ref, self.teacher = [], [], []
        for one in random_rollouts(number, model.config.vocab_size, seed, rows):
            if choosy:
                draw = random_wholes if choosy == "whole" else random_supports
                one = replace(one, supports=draw(one, model.config.vocab_size, seed))
            logprobs = []
            for row in one.rows:
                known = known_ids(row.supports, model.config.vocab_size)
                with torch.no_grad():
                    own = reference.log_probabilities(
                        model, row.token_ids.tolist(), supports=known
                    )[0].double()
                mask = torch.tensor(row.agent_token_mask, dtype=torch.float64)
                own[row.supports.forced] = 0.0
                old = (own + noise(len(own), 0.3)) * mask if off_policy else own * mask
                sampler = (old + noise(len(own), 0.5)) * mask
                self.old.append(old)
                self.ref.append((own + noise(len(own), 0.3)) * mask)
                self.teacher.append(2 * self.ref[-1] - own * mask)
                self.advantages.append((noise(len(own), 1.0) * mask).numpy())
                logprobs.append(sampler.numpy())
            self.rollouts.append(with_logprobs(one, logprobs))

    def for_trainer(self):
        """The dict that `_generate_and_score_completions` would return."""
        in_loss = [not r.failed for r in self.rollouts]
        made = make_rollouts(self.rollouts, self.advantages, in_loss, self.train_on)
        number = 0
        for rollout in made:
            wholes = list(enumerate(rollout.played.rows, start=number))
            number += len(wholes)
            for row in rollout.rows:
                # A row of `train_on="steps"` is the beginning of the row that it was cut from.
                at = next(
                    n for n, w in wholes if np.array_equal(w.token_ids[: row.length], row.token_ids)
                )
                given = {"reference": self.ref}
                given |= {"old": self.old} if self.off_policy else {}
                given |= {"teacher": self.teacher} if self.taught else {}
                row.logps = {name: of_rows[at][row.positions] for name, of_rows in given.items()}
        return {"rollout_index": torch.arange(len(made)), "rollouts": made}

    def for_reference(self):
        """Lists of `reference.Row`s, live rollouts only."""
        result, number = [], 0
        for rollout in self.rollouts:
            rows = []
            for row in rollout.rows:
                steps = [-1] * len(row.token_ids)
                for span in row.spans:
                    steps[span.start : span.stop] = [span.step] * span.length
                rows.append(
                    reference.Row(
                        row.token_ids.tolist(),
                        row.agent_token_mask.tolist(),
                        self.advantages[number].tolist(),
                        steps,
                        row.logprobs.tolist(),
                        self.old[number].tolist() if self.off_policy else None,
                        self.ref[number].tolist(),
                        self.teacher[number].tolist(),
                        known_ids(row.supports, self.vocabulary),
                    )
                )
                number += 1
            if not rollout.failed:
                result.append(rows)
        return result
