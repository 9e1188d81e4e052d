"""The section `warm_start` of a run: who plays the games, and how a model learns from them."""

import math
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from agentsgym.generation.settings import ChatEndpoint
from agentsgym.types.settings import (
    STRICT,
    Count,
    CountOrZero,
    NotNegative,
    Positive,
    Section,
    Seed,
    Share,
)

SCRIPTED = ("teacher", "optimal", "random")
ROLLOUTS, CHAT = "rollouts", "chat"
Pieces = Literal["lines", "words", "phrases"]
"""Into what a new tokenizer splits text before it merges bytes to tokens."""
_SOURCE_KEYS = {"run": ROLLOUTS, "engine": CHAT, "temperature": CHAT, "max_answer_tokens": CHAT}
"""Keys that belong to one source."""

_FROZEN = ConfigDict(**STRICT, frozen=True, use_attribute_docstrings=True)
_NEW_MODEL: dict[str, Any] = {
    "source": "teacher",
    "epochs": 1,
    "steps": 1000,
    "batch_size": 96,
    "learning_rate": 3e-3,
    "warmup_steps": 50,
    "adam_beta2": 0.98,
    "max_tokens_per_forward": 1024,
}
_PRETRAINED: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 16,
    "adam_beta2": 0.999,
    "max_tokens_per_forward": 4096,
}
_ONLY_NEW_MODEL = frozenset(
    {
        "env_config",
        "first_env_config",
        "first_steps",
        "final_action_weight",
        "games_per_round",
        "max_seconds",
        "tokenizer",
        "tokenizer_games",
        "vocab_size",
        "max_token_length",
        "model",
    }
)
_ONLY_PRETRAINED = frozenset(
    {
        "games",
        "min_reward",
        "probe_tasks",
        *_SOURCE_KEYS,
        "held_out_share",
        "eval_steps",
        "patience",
    }
)
_ADAPTER_RATE, _WEIGHTS_RATE = 2e-4, 2e-5
_WARMUP_SHARE = 0.05
_LEAST_INDUCTION_WIDTH = 8


class TinySettings(Section):
    """Shape of the tiny model: about 0.45 M parameters by default and 950 tokens in the vocabulary.

    With transformers' default `initializer_range`, 0.02, the model learns several times slower.
    Raises ValueError if `heads` or `head_size` is too small for the induction heads.
    """

    model_config = _FROZEN

    hidden_size: Count = 128
    layers: Count = 2
    heads: Count = 4
    head_size: Count | None = None
    """Dimension of a head; None: hidden_size / heads. Induction heads copy exactly if it is at
    least half of hidden_size."""
    intermediate_size: Count = 256
    max_positions: Count = 512
    initializer_range: float = Field(default=0.06, gt=0)
    induction_heads: CountOrZero = 0
    """Heads per layer that are initialized to copy the token after an earlier occurrence of the
    current token; they help if names and words differ between tasks."""
    recency_heads: CountOrZero = 0
    """Heads per layer, except in the first, that are initialized to attend to the last 16
    tokens."""

    @model_validator(mode="after")
    def _induction_heads_fit(self) -> Self:
        if self.induction_heads == 0:
            if self.recency_heads:
                raise ValueError("recency_heads needs induction_heads")
            return self
        if self.layers < 2:
            raise ValueError("induction_heads needs at least 2 layers")
        if self.induction_heads + self.recency_heads > self.heads:
            raise ValueError(
                f"induction_heads and recency_heads must be at most heads, {self.heads}"
            )
        size = self.head_size or self.hidden_size // self.heads
        if size < _LEAST_INDUCTION_WIDTH:
            least = _LEAST_INDUCTION_WIDTH
            raise ValueError(f"induction_heads needs heads of at least {least} entries, not {size}")
        return self


class WarmStartSettings(Section):
    """Imitation of games before RL (docs/warm-start.md). For a new model (`model: tiny`), a
    teacher plays games while the model trains; a pretrained model trains for several epochs on a
    fixed number of games.

    The learning rate rises over `warmup_steps` and falls along a cosine to `final_lr` times its
    maximum. If the number of updates is not fixed, the rate stays constant until the end is known,
    and then falls linearly.
    """

    model_config = _FROZEN

    source: Literal["teacher", "optimal", "random", "rollouts", "chat"] | None = None
    """Who plays the games; rollouts: another run's games; chat: an endpoint. None: the teacher for
    the model tiny, otherwise no warm start."""
    seed: Seed = 0
    """Seed of the games, of their order, and of the held-out split."""
    env_config: dict[str, Any] = Field(default_factory=dict)
    """Changes to `env_config` for the games that a new model imitates."""
    first_steps: CountOrZero = 0
    """Updates at the start that train a new model on easier games
    (`first_env_config`)."""
    first_env_config: dict[str, Any] = Field(default_factory=dict)
    """Changes to `env_config` for these easier games."""

    games: Count = 256
    """Maximum number of games that a pretrained model imitates."""
    best_of: Count = 1
    """Games per task; only the best game is imitated."""
    min_reward: float | None = None
    """Games that earn less are not imitated."""
    probe_tasks: CountOrZero = 8
    """Training tasks on which the model plays a group of games before and after the warm
    start."""
    run: str | None = None
    """Directory of the run whose games are imitated, for the source rollouts."""
    engine: ChatEndpoint | None = None
    """Endpoint for the source chat."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of the endpoint."""
    max_answer_tokens: Count = 512
    """Maximum number of tokens in an endpoint's answer."""

    tokenizer: Pieces = "lines"
    """Longest text that a token of a new model may span: a line, or a word or symbol. With phrases,
    each fixed phrase of the game is also one token."""
    tokenizer_games: Count = 2000
    """Games whose text trains a new model's tokenizer."""
    games_per_round: Count = 1920
    """Games per round; a new model imitates each round `epochs` times."""
    final_action_weight: NotNegative = 1.0
    """Loss weight of each episode's last action; falls to 1 over the first half of the updates."""
    vocab_size: Count = 2048
    """Maximum number of tokens in a new tokenizer."""
    max_token_length: Count = 40
    """Maximum number of characters in a token of a new tokenizer."""
    model: TinySettings = Field(default_factory=TinySettings)
    """Shape of a new model."""

    epochs: Count | None = None
    """Passes over the games of a pretrained model (None: 3), or over each round of games of a
    new model (None: 1)."""
    steps: Count | None = None
    """Number of updates. None: a pretrained model trains for all epochs; a new model for at most
    1000 updates, until it plays as legally and as well as its teacher (with `best_of`: as well as
    halfway between the teacher and the best games)."""
    max_seconds: Positive | None = None
    """Seconds after which the warm start of a new model ends; the learning rate falls in the last
    fifth of this time. Such a run can't be repeated exactly."""
    batch_size: Count | None = None
    """Rows per update. None: 96 for a new model, 16 for a pretrained model."""
    max_tokens_per_forward: Count | None = None
    """Maximum number of padded tokens in a forward pass; affects memory, not the result.
    None: 1024 for a new model, 4096 for a pretrained model."""
    learning_rate: NotNegative | None = None
    """Maximum learning rate. None: 3e-3 for a new model, 2e-4 for adapters, 2e-5 for other
    weights."""
    warmup_steps: CountOrZero | None = None
    """Updates over which the learning rate rises. None: 50 for a new model, a twentieth
    of all updates for a pretrained model."""
    final_lr: Share = 0.02
    """Final learning rate as a share of the maximum."""
    weight_decay: NotNegative = 0.0
    """AdamW's weight decay; biases and norms are excluded."""
    adam_beta2: float | None = Field(default=None, ge=0, lt=1)
    """AdamW's beta2. None: 0.98 for a new model, 0.999 for a pretrained model."""
    max_grad_norm: NotNegative = 1.0
    """Larger gradients are scaled down to this norm."""
    held_out_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the tasks whose games only serve to measure the held-out loss."""
    eval_steps: Count | None = None
    """Updates between two measurements of the held-out loss. None: an epoch."""
    patience: Count = 2
    """Training ends after this number of measurements without a new lowest held-out loss."""

    @model_validator(mode="after")
    def _source_has_its_keys(self) -> Self:
        changed = self._changed
        for key, source in _SOURCE_KEYS.items():
            if key in changed:
                if self.source != source:
                    raise ValueError(f"{key} is only for source {source!r}; leave it out")
            elif self.source == source and key in ("run", "engine"):
                raise ValueError(f"source {source!r} needs {key}")
        if self.source == ROLLOUTS and self.best_of != 1:
            raise ValueError("source 'rollouts' has games that were played; leave best_of out")
        if self.first_env_config and not self.first_steps:
            raise ValueError("first_env_config has no effect without first_steps; set both")
        return self

    @property
    def _changed(self) -> set[str]:
        """The keys that have another value than their default."""
        return set(self.model_dump(exclude_defaults=True))

    def resolved(self, *, new_model: bool) -> Self:
        """The settings with the defaults of a new or of a pretrained model. Raises ValueError for a
        key that has no effect on it."""
        kind = "of the new model tiny" if new_model else "of a pretrained model"
        for key in self._changed & (_ONLY_PRETRAINED if new_model else _ONLY_NEW_MODEL):
            raise ValueError(f"{key} has no effect on the warm start {kind}; leave it out")
        if new_model and self.source not in (None, *SCRIPTED):
            raise ValueError(f"source of a warm start {kind} must be one of {', '.join(SCRIPTED)}")
        defaults = _NEW_MODEL if new_model else _PRETRAINED
        missing = {key: value for key, value in defaults.items() if getattr(self, key) is None}
        return self.model_copy(update=missing)

    def rate_at(
        self, step: int, steps: int, *, adapters: bool = False, falls_from: int | None = None
    ) -> float:
        """The learning rate of update number `step`, from 0, of `steps`; with `falls_from` it falls
        on a line from that update on."""
        top = self.learning_rate
        if top is None:
            top = _ADAPTER_RATE if adapters else _WEIGHTS_RATE
        warmup = round(_WARMUP_SHARE * steps) if self.warmup_steps is None else self.warmup_steps
        rise = min(1.0, (step + 1) / max(warmup, 1))
        fall = 0.5 * (1 + math.cos(math.pi * step / steps))
        if falls_from is not None:
            fall = 1 - max(0, step - falls_from) / max(1, steps - falls_from)
        return top * rise * (self.final_lr + (1 - self.final_lr) * fall)

    def final_weight_at(self, step: int, steps: int) -> float:
        """Loss weight of an episode's last action in update number `step` of `steps`."""
        return 1.0 + (self.final_action_weight - 1.0) * max(0.0, 1 - 2 * step / steps)
