"""The files of checkpoints and models: the newest undamaged checkpoint, damage, digests."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open

from agentsgym.runs.files import RunDirectory
from agentsgym.runs.files.atomic import remove, replacing

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer

# Without these files a resumed run would silently restart its optimizer and schedule.
_STATE = ("trainer_state.json", "scheduler.pt")
# The optimizer's of one process and of DDP, of FSDP2, and of ZeRO.
_OPTIMIZER = ("optimizer.pt", "optimizer.bin", "global_step*")
ADAPTER_CONFIG, _ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def save_model(trainer: "GRPOEnvTrainer", folder: Path) -> None:
    """Write the trained model of a run. All ranks must call it; the first one writes."""
    from agentsgym.training.reference import REFERENCE_ADAPTER

    def save() -> None:
        if trainer.ranks.rank:
            trainer.save_model(str(folder))  # gives its part of the weights, and writes nothing
            return
        with replacing(folder) as part:
            trainer.save_model(str(part))
            remove(part / REFERENCE_ADAPTER)

    trainer.ranks.together(save)


def last_whole(directory: RunDirectory, note: Callable[[str], None]) -> tuple[int, Path] | None:
    """Step and path of the newest checkpoint that can be read, or None.

    Newer ones that are damaged are reported; the resumed run writes them again.
    """
    for step, path in directory.all_checkpoints():
        problem = checkpoint_damage(path)
        if problem is None:
            return step, path
        note(f"{path} is damaged ({problem}); the previous one is used")
    return None


def checkpoint_damage(folder: Path) -> str | None:
    """The problem with the files of a checkpoint, or None."""
    missing = [name for name in _STATE if not (folder / name).is_file()]
    if not any(any(folder.glob(pattern)) for pattern in _OPTIMIZER):
        missing.append(_OPTIMIZER[0])
    if missing:
        return f"{missing[0]} is missing"
    return _first_problem(folder, _OF_STATES) or model_damage(folder)


def adapter_damage(folder: Path) -> str | None:
    """The problem with the files of an adapter directory, or None."""
    if not (folder / _ADAPTER_WEIGHTS).is_file():
        return f"it has no weights in {_ADAPTER_WEIGHTS} (pickled ones are not read)"
    return _first_problem(folder, _OF_MODELS)


def model_damage(folder: Path) -> str | None:
    """The problem with the files of a model or adapter directory, or None.

    It checks each file's structure and length, not the weights themselves.
    """
    if (folder / ADAPTER_CONFIG).is_file():
        return adapter_damage(folder)
    if not (folder / "config.json").is_file():
        return "config.json is missing"
    problem = _first_problem(folder, _OF_MODELS)
    if problem is None and not any(folder.glob("*.safetensors")):
        return "it has no weights in *.safetensors (pickled ones are not read)"
    return problem


def _first_problem(folder: Path, patterns: Sequence[str]) -> str | None:
    for file in folder.iterdir():
        if file.exists() and not (file.is_file() or file.is_dir()):
            return f"{file.name} is no file"  # such as a pipe, which loaders would wait for
    for pattern in patterns:
        for file in sorted(folder.glob(pattern)):
            try:
                _look_at(file)
            except Exception as error:  # each reader raises its own errors for damaged files
                return f"{file.name}: {' '.join(str(error).split())[:100]}"
    return None


def _look_at(file: Path) -> None:
    """Raise an error for a damaged file."""
    if file.suffix == ".safetensors":
        with safe_open(file, "np") as opened:
            opened.keys()
    elif file.suffix == ".json":
        data = json.loads(file.read_bytes())
        if not isinstance(data, dict):
            raise ValueError("no JSON object")
        for part in set(data.get("weight_map", {}).values()):
            if file.name.endswith(".index.json") and not (file.parent / part).is_file():
                raise ValueError(f"{part} is missing")
    else:  # the files of torch.save are ZIP archives with checksums
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} does not have its checksum")


_OF_MODELS = (
    "config.json",
    ADAPTER_CONFIG,
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "*.safetensors.index.json",
    "*.safetensors",
)
_OF_STATES = ("trainer_state.json", "*.pt", "*.pth", "optimizer.bin")


_SUFFIXES = (".safetensors", ".bin", ".gguf")


def weights_digest(path: str) -> str | None:
    """A digest of the names, sizes and times of the weight files in a directory. None if there are
    none here, as for a model on a hub."""
    files = sorted(file for file in Path(path).glob("*") if file.suffix in _SUFFIXES)
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest() if facts else None
