"""Whether a model is wrapped by PEFT. It imports neither PEFT nor torch."""

from typing import Any


def is_adapted(model: Any) -> bool:
    """Whether PEFT wraps a model."""
    return hasattr(model, "peft_config") and hasattr(model, "active_adapter")
