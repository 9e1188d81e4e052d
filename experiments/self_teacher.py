"""Learning from more than the reward: a self-teacher, a loss on observations, and a control.

    python experiments/self_teacher.py [--seed N] [--only NAME] [--report]

Twenty Questions as on the board of credit estimators (`credit_board.RECIPES`: 8,000 environment
steps), trained by plain GRPO, and with one term more:

- "self-teacher": KL per token to the policy itself, which reads what it could not know when it
  acted: every attribute of the secret, as hints in the first prompt. The start wins 30 % of games
  with two hints and 71 % with all of them.
- "self-teacher alone": without the advantages.
- "observations": minus the log-probability of the environment's tokens after the first action, the
  mean over those of an update, times `OBSERVATION_WEIGHT`.
- "control": `UNLIKELY_ADVANTAGE` more for each sampled token whose probability was below
  `UNLIKELY`, whatever happened; it has no teacher (arXiv 2608.31046, known to us from a summary).

None of them needs a change of the trainer: the first and the last are passes over the rollouts of a
generation (`trainer.passes`), as a teacher's and a reference's are, and the loss on observations is
one more backward pass of an update. Results are kept in docs/results/self-teacher.json, and a run
that is there is not made again.
"""

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import credit_board as board
import numpy as np
import torch
import transformers
from explore_runs import Store

from agentsgym import GRPOEnvTrainer, make
from agentsgym.training.loss.batch import TrainRollout, TrainRow, bare_row
from agentsgym.types import StepSpan

ENV, ESTIMATOR = "TwentyQuestions", "grpo"
OBSERVATION_WEIGHT = 0.1
UNLIKELY, UNLIKELY_ADVANTAGE = 0.1, -1.0


# -- the self-teacher ------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelfTeacher:
    """A pass that gives rows the log-probabilities of the policy with another first prompt."""

    trainer: GRPOEnvTrainer
    prompt: Callable[[Mapping[str, Any]], str]

    def run(self, rollouts: Sequence[TrainRollout]) -> None:
        """Fill in `logps["teacher"]` of all rows of rollouts that did not fail."""
        told: dict[int, TrainRow] = {}
        read = []
        for one in rollouts:
            for row in [] if one.played.failed else one.rows:
                read.append(self._told(row, self._prefix(one.played.task_data)))
                told[id(read[-1])] = row
        scorer, model = self.trainer.loss.scorer, self.trainer.model
        for row, logps in scorer.logps_of(read, model):
            told[id(row)].logps["teacher"] = logps

    def _prefix(self, task_data: Mapping[str, Any]) -> list[int]:
        message = {"role": "user", "content": self.prompt(task_data)}
        ids: list[int] = self.trainer.processing_class.apply_chat_template(
            [message], add_generation_prompt=True, return_dict=False
        )
        return ids

    def _told(self, row: TrainRow, prefix: list[int]) -> TrainRow:
        """The row with another prefix before its first action."""
        start = row.spans[0].start
        ids = np.concatenate([np.array(prefix, np.int32), row.token_ids[start:]])
        by = len(prefix) - start
        spans = tuple(replace(s, start=s.start + by, stop=s.stop + by) for s in row.spans)
        return bare_row(ids, spans, row.session_id)


def teach(trainer: GRPOEnvTrainer, weight: float = 1.0, *, alone: bool = False) -> None:
    """Add the self-teacher's KL, with this weight. Its prompt has all that the table knows about
    the secret, as hints are written."""
    config = {**board.RECIPES[ENV].env_config, "hints": 1000}
    told: Any = make(ENV, None, config)
    trainer.args.distillation_weight = weight
    trainer.args.policy_gradient = not alone
    trainer.passes.append(SelfTeacher(trainer, lambda task: told.first_prompt(told.start(task))))


# -- the loss on observations ----------------------------------------------------------------------


def observed(row: TrainRow) -> TrainRow:
    """The row with loss on what the environment said between its actions."""
    spans = [StepSpan(0, k, a.stop, b.start) for k, (a, b) in enumerate(pairwise(row.spans))]
    return bare_row(row.token_ids, tuple(spans), row.session_id)


def predict(trainer: GRPOEnvTrainer) -> None:
    """Add the loss on observations to each update, which is one micro-batch here."""
    learn, scorer = trainer.update.learn, trainer.loss.scorer

    def learn_both(model: Any, rollouts: Sequence[TrainRollout]) -> Any:
        learned = learn(model, rollouts)
        rows = [observed(row) for one in rollouts if not one.played.failed for row in one.rows]
        tokens = sum(row.agent_tokens for row in rows)
        for layout in scorer.layouts(rows, model) if tokens else []:
            with scorer.reading(model, layout):
                logps = scorer.forward(model, layout).logps
                (-OBSERVATION_WEIGHT / tokens * logps.sum()).backward()
        return learned

    trainer.update.learn = learn_both


# -- the control -----------------------------------------------------------------------------------


class Unlikely:
    """A pass that lowers the advantages of unlikely tokens by a fixed number."""

    def run(self, rollouts: Sequence[TrainRollout]) -> None:
        """Change `advantages` of all rows."""
        for row in (row for one in rollouts for row in one.rows):
            at = row.positions
            row.advantages[at] += UNLIKELY_ADVANTAGE * (row.logprobs[at] < math.log(UNLIKELY))


# -- the runs --------------------------------------------------------------------------------------

ARMS: Mapping[str, Callable[[GRPOEnvTrainer], Any]] = {
    "plain": lambda trainer: None,
    "self-teacher": teach,
    "control": lambda trainer: trainer.passes.append(Unlikely()),
    "observations": predict,
    "self-teacher, weight 0.1": lambda trainer: teach(trainer, 0.1),
    "self-teacher alone": lambda trainer: teach(trainer, alone=True),
}


def run(arm: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """One run: its held-out score, its mean score in training, and the curve."""
    cell, began = board.Cell(ENV, ESTIMATOR, seed), time.process_time()
    torch.manual_seed(seed)
    model, tokenizer = board.load(board.QUICKSTART)
    budget = board.train(cell, model, tokenizer, quick, ARMS[arm])
    score = board.measure(cell, model, tokenizer, quick)
    return {
        "arm": arm,
        "seed": seed,
        "score": score,
        "auc": round(budget.auc, 4),
        "env_steps": budget.used,
        "curve": [(steps, round(reward, 4)) for steps, reward in budget.played],
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def report(results: Sequence[Mapping[str, Any]]) -> str:
    """Each arm, and its difference from plain GRPO, seed by seed."""
    groups = {
        arm: sorted((r for r in results if r["arm"] == arm), key=lambda r: r["seed"])
        for arm in ARMS
    }
    groups = {arm: own for arm, own in groups.items() if own}
    against = groups | {board.REFERENCE: groups.get("plain", [])}
    rows = []
    for arm, own in groups.items():
        cells = [arm, str(len(own))]
        for key in ("score", "auc"):
            cells.append(board.student([run[key] for run in own]))
            cells.append("" if arm == "plain" else board.verdict(against, arm, key))
        rows.append(cells)
    head = ("GRPO with", "n", "held-out score", "over plain", "in training", "over plain")
    return board.table(head, rows)


def main() -> None:
    """Make the runs that are missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, action="append", help="instead of 0, 1 and 2")
    parser.add_argument("--only", action="append", choices=ARMS, help="only these")
    parser.add_argument("--report", action="store_true", help="only print the table")
    parser.add_argument("--quick", action="store_true", help="print one small run of each")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    store = Store(board.RESULTS / "self-teacher.json")
    if args.quick:
        for arm in args.only or ARMS:
            print(run(arm, 0, quick=True))
        return
    for seed in () if args.report else args.seed or range(board.SEEDS):
        for arm in args.only or ARMS:
            if (arm, seed) not in {(r["arm"], r["seed"]) for r in store.read()}:
                store.add(run(arm, seed, quick=False))
                print(arm, seed, store.read()[-1]["score"], flush=True)
    print(report(store.read()))


if __name__ == "__main__":
    main()
