"""The memory that a token of a forward pass with gradients takes, by the shape of the model."""

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes that a pass keeps for its backward pass: of each `token` that it reads, and of each
    `key` that a branch of a forest gathers from its path, with its value."""

    token: int
    key: int

    @classmethod
    def of(cls, config: Any, item: int, *, checkpointing: bool) -> Self:
        """Of a model with this configuration, which multiplies in numbers of `item` bytes.

        A layer keeps 36 widths of a byte and 4 MLP widths of a token. With gradient checkpointing
        each keeps its input, and one at a time the rest and what it gathers.
        """
        layers, width = int(config.num_hidden_layers), int(config.hidden_size)
        heads = int(config.num_attention_heads)
        size = getattr(config, "head_dim", None) or width // heads
        keys = (getattr(config, "num_key_value_heads", None) or heads) * size
        inner = int(getattr(config, "intermediate_size", None) or 4 * width)
        layer, gathered = 36 * width + 4 * item * inner, 2 * keys * item
        if checkpointing:
            return cls(4 * width * layers + layer, gathered)
        return cls(layer * layers, gathered * layers)

    @property
    def share(self) -> float:
        """How many tokens a gathered key counts as."""
        return self.key / self.token
