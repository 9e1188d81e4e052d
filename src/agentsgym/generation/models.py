"""Adapters, and models that an engine of this process does not take. Importing it stays light."""

from typing import Any


def is_adapted(model: Any) -> bool:
    """Whether PEFT wraps a model."""
    return hasattr(model, "peft_config") and hasattr(model, "active_adapter")


class UnsupportedModelError(ValueError):
    """The model needs a feature that the embedded engine lacks; the message says which engines
    may have it. `reason` is the message without that advice."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{reason}; the plain engine runs it slower: leave engine out or set it to plain; vLLM "
            "may run it: set engine.urls (docs/engines.md)"
        )
