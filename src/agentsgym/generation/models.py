"""Model families and the engine that samples from each; adapters; models that no engine takes.

Importing it stays light. docs/engines.md holds the table of families, and
tests/generation/test_families.py every entry: a tiny random model of the family plays, and its
log-probabilities are compared with full forward passes.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """A family by its name and transformers' `model_type`, with the engine that is chosen for it
    (a name in the table of engines), and what is special about its layers."""

    name: str
    model_type: str
    engine: str = "embedded"
    layers: str = ""


_WINDOW = "sliding windows"

FAMILIES = (
    Family("Llama 3", "llama"),
    Family("Qwen 2.5", "qwen2", layers="sliding windows where switched on"),
    Family("Qwen 3", "qwen3"),
    Family("Qwen 3 MoE", "qwen3_moe", layers="mixture of experts"),
    Family("Qwen 3-Next", "qwen3_next", "plain", "linear attention, mixture of experts"),
    Family("Qwen 3.5 (text)", "qwen3_5_text", "plain", "linear attention"),
    Family("Gemma 2", "gemma2", layers=f"{_WINDOW}, soft caps on attention and logits"),
    Family("Gemma 3 (text)", "gemma3_text", layers=_WINDOW),
    Family("Gemma 4 (text)", "gemma4_text", "plain", f"{_WINDOW}, heads of two sizes"),
    Family("Mistral 7B", "mistral", layers=_WINDOW),
    Family("Ministral", "ministral", layers=_WINDOW),
    Family("Ministral 3", "ministral3"),
    Family("Phi-3, Phi-4", "phi3", layers=_WINDOW),
    Family("SmolLM3", "smollm3", layers="layers without positions"),
    Family("OLMo 2", "olmo2"),
    Family("OLMo 3", "olmo3", layers=_WINDOW),
    Family("Granite 3", "granite", layers="scaled logits"),
    Family("Granite 4", "granitemoehybrid", "plain", "Mamba 2 and attention"),
    Family("gpt-oss", "gpt_oss", layers=f"{_WINDOW}, sinks, mixture of experts"),
    Family("LFM2", "lfm2", "plain", "convolutions and attention"),
    Family("GLM-4", "glm4"),
    Family("GLM-4.5", "glm4_moe", layers="mixture of experts"),
    Family("DeepSeek V3", "deepseek_v3", "plain", "latent attention, mixture of experts"),
    Family("Command R7B", "cohere2", layers=f"{_WINDOW}, scaled logits"),
    Family("Falcon-H1", "falcon_h1", "plain", "Mamba 2 beside attention"),
)
"""In the order of the table."""


def families_table() -> str:
    """The table of docs/engines.md, as Markdown."""
    lines = ["| family | `model_type` | engine | its layers |", "|" + "---|" * 4]
    for family in FAMILIES:
        cells = (family.name, f"`{family.model_type}`", f"`{family.engine}`", family.layers)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


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
