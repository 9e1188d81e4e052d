"""The numbers of a decoder that decide its memory, from its config.json or from a table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.runs.builtin_models import builtin_folder
from agentsgym.runs.config import RunConfig
from agentsgym.runs.model_config import BUILTIN, SMOLLM2, TINY
from agentsgym.runs.smollm2 import HUB_NAME

_MIXTURES = ("num_experts", "num_local_experts", "n_routed_experts")
_TINY_VOCABULARY = 2048  # the limit of its tokenizer; a game's texts rarely fill it


@dataclass(frozen=True, slots=True)
class Architecture:
    """A dense decoder in the manner of Llama: attention with `heads` query heads and `kv_heads` key
    heads of `head_dim` values, and a gated MLP of width `mlp`.

    `tied` says that the output layer is the embedding, `qk_norm` that queries and keys are
    normalized, `bias` that the projections of queries, keys and values have one. `kind` is
    transformers' model type.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    tied: bool
    qk_norm: bool = False
    bias: bool = False
    kind: str = "llama"

    @property
    def queries(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Width of all key heads, and of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """Input and output width of each linear layer of a block."""
        width, queries, keys, mlp = self.width, self.queries, self.keys, self.mlp
        return {
            "q_proj": (width, queries),
            "k_proj": (width, keys),
            "v_proj": (width, keys),
            "o_proj": (queries, width),
            "gate_proj": (width, mlp),
            "up_proj": (width, mlp),
            "down_proj": (mlp, width),
        }

    @property
    def linear(self) -> int:
        """Weights of the linear layers of all blocks."""
        return self.layers * sum(a * b for a, b in self.linear_shapes.values())

    @property
    def embeddings(self) -> int:
        """Weights of the embedding, and of the output layer where it is another matrix."""
        return self.vocabulary * self.width * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All weights."""
        norms = 2 * self.width + (2 * self.head_dim if self.qk_norm else 0)
        biases = self.queries + 2 * self.keys if self.bias else 0
        return self.linear + self.layers * (norms + biases) + self.embeddings + self.width

    def lora_weights(
        self, r: int, targets: str | list[str], layers: list[int] | None = None
    ) -> int:
        """Weights of a LoRA adapter of rank `r`; `targets` and `layers` (None: all) as in PEFT."""
        wanted = self.linear_shapes if isinstance(targets, str) else targets
        shapes = [shape for name, shape in self.linear_shapes.items() if name in wanted]
        return (len(layers) if layers else self.layers) * r * sum(a + b for a, b in shapes)


def _qwen3(
    layers: int, width: int, heads: int, mlp: int, *, tied: bool, kv_heads: int = 8
) -> Architecture:
    return Architecture(
        layers, width, heads, kv_heads, 128, mlp, 151936, tied=tied, qk_norm=True, kind="qwen3"
    )


def _llama(
    layers: int, width: int, heads: int, kv_heads: int, mlp: int, vocabulary: int
) -> Architecture:
    return Architecture(layers, width, heads, kv_heads, width // heads, mlp, vocabulary, tied=True)


# From the models' config.json on Hugging Face. Tests compare the sums with the numbers of
# parameters on the model cards.
KNOWN: dict[str, Architecture] = {
    HUB_NAME: _llama(30, 576, 9, 3, 1536, 49152),
    "HuggingFaceTB/SmolLM2-360M-Instruct": _llama(32, 960, 15, 5, 2560, 49152),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": _llama(24, 2048, 32, 32, 8192, 49152),
    "Qwen/Qwen3-0.6B": _qwen3(28, 1024, 16, 3072, tied=True),
    "Qwen/Qwen3-1.7B": _qwen3(28, 2048, 16, 6144, tied=True),
    "Qwen/Qwen3-4B": _qwen3(36, 2560, 32, 9728, tied=True),
    "Qwen/Qwen3-8B": _qwen3(36, 4096, 32, 12288, tied=False),
    "meta-llama/Llama-3.2-1B-Instruct": _llama(16, 2048, 32, 8, 8192, 128256),
    "meta-llama/Llama-3.2-3B-Instruct": _llama(28, 3072, 24, 8, 8192, 128256),
}


def architecture_of(config: RunConfig) -> Architecture:
    """The architecture of a run's model, from the files on this machine or from `KNOWN`.

    Raises ConfigError if neither knows it, or if it is no dense decoder.
    """
    path = config.model.path
    if path == TINY:
        return _tiny(config)
    if path == SMOLLM2:
        return KNOWN[HUB_NAME]
    if path.startswith(BUILTIN):
        with builtin_folder(path.removeprefix(BUILTIN)) as folder:
            return of_file(folder / "config.json")
    if Path(path).is_dir():
        return of_file(_base(Path(path)) / "config.json")
    cached = in_hub_cache(path, config.model.revision)
    if cached is not None:
        return of_file(cached)
    if path in KNOWN:
        return KNOWN[path]
    raise ConfigError(
        f"the architecture of {path!r} is not known here: it is no directory, not in the cache of "
        f"the hub and not one of {', '.join(KNOWN)}"
    )


def of_file(path: Path) -> Architecture:
    """The architecture that a config.json describes. Raises ConfigError if it cannot be read."""
    try:
        return _of_config(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"no memory can be estimated from {path}: {reason}") from None


def _of_config(found: Mapping[str, Any]) -> Architecture:
    config = found.get("text_config") or found
    if any(config.get(name) for name in _MIXTURES):
        raise ValueError("it is a mixture of experts, and only dense decoders are counted")
    heads = config["num_attention_heads"]
    kind = config.get("model_type", "")
    return Architecture(
        layers=config["num_hidden_layers"],
        width=config["hidden_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        mlp=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", found.get("tie_word_embeddings", True))),
        qk_norm=kind.startswith(("qwen3", "gemma3", "olmo2")),
        bias=bool(config.get("attention_bias", kind.startswith("qwen2"))),
        kind=kind,
    )


def _tiny(config: RunConfig) -> Architecture:
    from agentsgym.training.warm_start_settings import TinySettings

    given = config.warm_start.get("model", {})
    try:
        tiny = TinySettings(**given)
    except ValueError as error:
        raise ConfigError(f"warm_start.model: {error}") from None
    width, heads, mlp = tiny.hidden_size, tiny.heads, tiny.intermediate_size
    return _llama(tiny.layers, width, heads, heads, mlp, _TINY_VOCABULARY)


def _base(folder: Path) -> Path:
    """The folder itself, or of an adapter's the base model."""
    notes = folder / "adapter_config.json"
    if not notes.is_file():
        return folder
    return Path(str(json.loads(notes.read_bytes()).get("base_model_name_or_path")))


def in_hub_cache(name: str, revision: str | None) -> Path | None:
    """The config.json of a hub model that was downloaded before, or None."""
    from transformers.utils import cached_file

    try:
        found = cached_file(name, "config.json", revision=revision, local_files_only=True)
    except (OSError, ValueError):  # a name that no hub has is a ValueError
        return None
    return None if found is None else Path(found)
