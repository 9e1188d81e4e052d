"""The settings of a warm start."""

import math
from dataclasses import dataclass, field

from agentsgym.training.warm_start.tiny import TinyConfig


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
