"""Warm start: supervised training on scripted games, before reinforcement learning.

Games are played through the environment itself, so the model reads the same kind of transcripts
that it will write later, and learns only from the agent's tokens.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from agentsgym.envs.base import MultistepEnv
from agentsgym.training.warm_start.games import ScriptedGames, texts_of
from agentsgym.training.warm_start.imitation import imitation_loss
from agentsgym.training.warm_start.tiny import TinyConfig, build_model, build_tokenizer
from agentsgym.types import Agent

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Receives (steps done, total steps, {"loss", "lr"})."""

_REPORTS = 100  # total number of progress reports


@dataclass(frozen=True, slots=True)
class WarmStartConfig:
    """The settings of a warm start.

    `steps` updates of AdamW on `batch_size` games each; the learning rate rises over
    `warmup_steps` and then falls along a cosine to `final_lr` times its maximum. New games are
    played `games_per_round` at a time and sorted by length within a round; none is used twice.
    `tokenizer_games` more games give the text for training the tokenizer. `final_action_weight` is
    the loss weight of each episode's last action, which may be the most informative one; it falls
    to 1 over the first half of the updates, so that in the end the model acts as often as its
    teacher.
    """

    steps: int = 1000
    batch_size: int = 96
    learning_rate: float = 3e-3
    final_lr: float = 0.02
    warmup_steps: int = 50
    weight_decay: float = 0.0
    beta2: float = 0.98
    max_grad_norm: float = 1.0
    final_action_weight: float = 1.0
    games_per_round: int = 1920
    tokenizer_games: int = 2000
    vocab_size: int = 2048
    max_token_length: int = 40
    model: TinyConfig = field(default_factory=TinyConfig)

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "games_per_round", "tokenizer_games"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    def lr_at(self, step: int) -> float:
        """Learning rate of update number `step`, from 0."""
        rise = min(1.0, (step + 1) / max(self.warmup_steps, 1))
        fall = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.learning_rate * rise * (self.final_lr + (1 - self.final_lr) * fall)

    def final_weight_at(self, step: int) -> float:
        """Loss weight of an episode's last action in update number `step`."""
        return 1.0 + (self.final_action_weight - 1.0) * max(0.0, 1 - 2 * step / self.steps)


@dataclass(frozen=True, slots=True)
class WarmStartResult:
    """A model, its tokenizer, and figures: `games`, `steps`, `parameters`, `vocabulary`, `loss`
    (nats per target, mean over the last tenth of the updates), `first_loss`, `tokens_per_action`
    and `tokens_per_observation` (means, without the template's markers)."""

    model: Any
    tokenizer: Any
    figures: dict[str, float]


def warm_start(
    env: MultistepEnv,
    agent: Agent,
    config: WarmStartConfig | None = None,
    seed: int = 0,
    *,
    tasks: Sequence[Mapping[str, Any]] | None = None,
    progress: Progress | None = None,
) -> WarmStartResult:
    """Build a tiny model and its tokenizer from games that `agent` plays.

    `tasks` (default: the environment's training tasks) are played in random order, again and
    again. Equal arguments on one machine give equal weights, if the agent's answers depend only on
    its own seed; the number of torch threads counts as an argument. Raises ValueError without
    tasks, RuntimeError if a game fails.
    """
    config = config or WarmStartConfig()
    tasks = list(env.get_train_dataset()["task_data"]) if tasks is None else list(tasks)
    if not tasks:
        raise ValueError("a warm start needs at least one task")
    rng = np.random.default_rng(seed)
    games = ScriptedGames(env, agent, tasks, rng)
    texts = texts_of(games.play(config.tokenizer_games))
    tokenizer = build_tokenizer(
        (text for pair in texts for text in pair),
        config.vocab_size,
        max_token_length=config.max_token_length,
    )
    model = build_model(tokenizer, config.model, seed)
    games.env = env.with_tokenizer(tokenizer)
    losses = imitate(model, games.endless(tokenizer, config), config, progress)
    figures = {
        "games": float(config.steps * config.batch_size),
        "steps": float(config.steps),
        "parameters": float(sum(p.numel() for p in model.parameters())),
        "vocabulary": float(len(tokenizer)),
        "first_loss": losses[0],
        "loss": float(np.mean(losses[-max(1, len(losses) // 10) :])),
        "tokens_per_action": _mean_tokens(tokenizer, [action for _, action in texts]),
        "tokens_per_observation": _mean_tokens(tokenizer, [seen for seen, _ in texts]),
    }
    return WarmStartResult(model, tokenizer, figures)


def imitate(
    model: Any,
    stream: Iterator[tuple[torch.Tensor, torch.Tensor]],
    config: WarmStartConfig,
    progress: Progress | None = None,
) -> list[float]:
    """Train `model` in place on (ids, weights) batches; returns the loss of each update."""
    optimizer = torch.optim.AdamW(
        model.parameters(), weight_decay=config.weight_decay, betas=(0.9, config.beta2)
    )
    every = max(1, config.steps // _REPORTS)
    losses: list[float] = []
    model.train()
    for step in range(config.steps):
        lr = config.lr_at(step)
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss = imitation_loss(model, *next(stream))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        optimizer.step()
        losses.append(float(loss.detach()))
        if progress is not None and (step + 1) % every == 0:
            progress(step + 1, config.steps, {"loss": float(np.mean(losses[-every:])), "lr": lr})
    model.eval()
    return losses


def describe(config: WarmStartConfig) -> dict[str, Any]:
    """The configuration as plain data, for a file of figures."""
    return asdict(config)


def _mean_tokens(tokenizer: Any, texts: Sequence[str]) -> float:
    encoded = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return float(np.mean([len(ids) for ids in encoded]))
