"""GRPO in one file: play, give credit, make the gradient, step.

    python examples/grpo_from_scratch.py [STEPS]    # 40 optimizer steps take half a minute on a CPU

The share of pulls that win on held-out tasks goes from 0.51 to 0.65 (seed 0); a player that
ignores the outcomes wins half of them. This is what `GRPOEnvTrainer` does, without its options:
no clipping, no KL, one process, one update per generation. The library brings the environment (a
bandit with two arms), the engine that samples, the record of every token (`batch.rows`), and credit
(`agentsgym.credit`). The loop is plain PyTorch. tests/test_grpo_from_scratch.py shows
that `grpo_loss` has the trainer's gradient.

The way of one step:

    tasks ── play ──> RolloutBatch ── advantages ──> one number per token ── grpo_loss ──> gradient

Three rules keep it right:

1. Sampled ids are law. A row holds the very ids that the model read and sampled; nothing is
   tokenized again.
2. Only agent tokens carry loss. Prompts, observations and the chat template's tokens are context.
3. The weight of a token is fixed before the batch is split: here 1/(agent tokens of the batch).
"""

import random
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from agentsgym import DirectOutputAgent, MultistepEnv, RolloutBatch, SamplingParams, make
from agentsgym.credit import advantages
from agentsgym.generation import EmbeddedEngine
from agentsgym.types import Message, Row
from agentsgym.warm_start.tiny import build_model, build_tokenizer

TASKS_PER_STEP = 16
ROLLOUTS_PER_TASK = 8
WARM_START_STEPS = 150
MAX_ACTION_TOKENS = 4
# Most arms nearly always win or nearly always lose: it pays to stay with one that won.
BANDIT = {
    "arms": 2,
    "max_steps_per_episode": 3,
    "prior_alpha": 0.1,
    "prior_beta": 0.1,
    "explain_actions": False,
}
ARMS = ("red", "green")

Task = dict[str, Any]


# --- the batch as tensors ---


def padded(rows: Sequence[Row], per_row: Sequence[Sequence[float]]) -> tuple[Tensor, Tensor]:
    """Token ids (int64) and a number per token (float32), both of shape (B, T).

    Rows are padded on the right with id 0 and number 0.0. A causal model never looks to the
    right, so the padding needs no attention mask.
    """
    length = max(len(row.token_ids) for row in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.int64)
    numbers = torch.zeros(len(rows), length)
    for i, (row, values) in enumerate(zip(rows, per_row, strict=True)):
        ids[i, : len(row.token_ids)] = torch.tensor(row.token_ids)
        numbers[i, : len(row.token_ids)] = torch.tensor(values)
    return ids, numbers


def log_probabilities(model: torch.nn.Module, ids: Tensor) -> Tensor:
    """The log-probability (nats) of each token given those before it, shape (B, T-1).

    Position t of the result belongs to token t + 1: the first token of a row is never predicted.
    """
    logits = model(input_ids=ids[:, :-1]).logits.float()
    return -cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


# --- the loss ---


def grpo_loss(model: torch.nn.Module, batch: RolloutBatch, estimator: str = "grpo") -> Tensor:
    """The GRPO loss of a batch that `model` has just sampled at temperature 1: a scalar.

    L = −Σ_t ρ_t A_t / (number of agent tokens), summed over agent tokens, with the ratio
    ρ_t = exp(log p_t − sg(log p_t)). Its value is 1, because the model that is trained is the one
    that sampled, and its gradient is that of log p_t: the policy gradient. PPO's clip would change
    nothing here; it is for a second update on the same rollouts.
    Source: Shao et al. 2024, arXiv 2402.03300; the normalization is DAPO's (arXiv 2503.14476).

    `advantages` compares the rollouts of one task and gives each of their agent tokens a number;
    it is 0.0 on all other tokens, so they drop out of the sum.
    """
    ids, advantage = padded(batch.rows, advantages(batch, estimator))
    agent_tokens = sum(sum(row.agent_token_mask) for row in batch.rows)
    logp = log_probabilities(model, ids)
    ratio = torch.exp(logp - logp.detach())
    return -(ratio * advantage[:, 1:]).sum() / agent_tokens


# --- a model that knows what an answer looks like ---


def imitation_loss(model: torch.nn.Module, batch: RolloutBatch, end_of_turn: int) -> Tensor:
    """Mean cross-entropy (nats) of what a scripted agent said, and of the end of each answer.

    A scripted agent speaks text. The library tokenizes its words and masks them in, but the
    end-of-turn token that follows belongs to the chat template, and a model must learn to sample
    it: an answer that does not end runs into the token cap.
    """
    targets = []
    for row in batch.rows:
        mask = list(row.agent_token_mask)
        for span in row.spans:
            if span.stop < len(mask) and row.token_ids[span.stop] == end_of_turn:
                mask[span.stop] = 1
        targets.append(mask)
    ids, mask = padded(batch.rows, targets)
    return -(log_probabilities(model, ids) * mask[:, 1:]).sum() / mask[:, 1:].sum()


class CarelessTeacher:
    """Pulls the same arm again three times in four after a win, two times in five after a loss.

    A model that imitates it has learned to look at the outcome, and is far from the best play. (A
    model that imitates a random player learns to ignore the outcome, and collapses to one arm.)
    """

    def __init__(self) -> None:
        self._draw = random.Random(0)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        stay = 0.75 if messages[-1]["content"].endswith("won.") else 0.4
        if agent_state is None:
            arm = self._draw.choice(ARMS)
        else:
            arm = agent_state if self._draw.random() < stay else ARMS[agent_state == ARMS[0]]
        return arm, arm


def warm_start(env: MultistepEnv, tasks: list[Task]) -> tuple[torch.nn.Module, MultistepEnv]:
    """A tiny model that has read games of the teacher, and the environment over its tokenizer."""
    teacher = CarelessTeacher()
    games = env.run_trial(tasks[:64], teacher)["final_completion_messages"]
    env = env.with_tokenizer(build_tokenizer([m["content"] for game in games for m in game], 400))
    model = build_model(env.tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = random.Random(0)
    for _ in range(WARM_START_STEPS):
        games = env.run_trial(draw.sample(tasks, 32), teacher)
        update(optimizer, imitation_loss(model, games, env.tokenizer.eos_token_id))
    return model, env


# --- the loop ---


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One optimizer step."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def mean_reward(batch: RolloutBatch) -> float:
    """The mean reward over rollouts: the share of pulls that won."""
    return sum(batch["final_rewards"]) / len(batch["final_rewards"])


def main(steps: int = 40) -> None:
    torch.set_num_threads(1)
    env = make("Bandit", env_config=BANDIT)
    tasks = list(env.get_train_dataset()["task_data"])
    model, env = warm_start(env, tasks)
    engine = EmbeddedEngine(model, env.tokenizer, capacity=TASKS_PER_STEP * ROLLOUTS_PER_TASK)
    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=MAX_ACTION_TOKENS))

    held_out = list(env.get_eval_dataset()["task_data"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw = random.Random(0)
    for step in range(steps + 1):
        if step % 20 == 0:
            reward = mean_reward(env.run_trial(held_out, agent))
            print(f"held-out reward after {step} steps: {reward:.3f}")
        chosen = draw.sample(tasks, TASKS_PER_STEP)
        batch = env.run_trial(chosen, agent, ROLLOUTS_PER_TASK, seed=step)
        update(optimizer, grpo_loss(model, batch, "step_return"))
        engine.reset()  # its caches were read with the old weights


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
