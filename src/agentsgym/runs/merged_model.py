"""Merges a run's adapter into its base model: a plain model directory for any other program."""

from pathlib import Path

from agentsgym.envs import ConfigError
from agentsgym.runs.adapters import is_adapter
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.files.atomic import replacing
from agentsgym.runs.load_model import Use, base_dtype, load_model
from agentsgym.runs.settings import ModelSettings


def merge_adapter(source: Path, output: Path | None = None, *, trust: bool = False) -> Path:
    """Write the base model with the adapter in `source`, a run or an adapter directory, as a plain
    model directory (default: `merged` in `source`), and return its path.

    The sum is computed in float32 and stored in the base model's own dtype. Raises ConfigError if
    there is no adapter, its base model cannot be loaded, or `output` exists.
    """
    folder = _adapter_in(source)
    target = output or source / "merged"
    if target.exists():
        raise ConfigError(f"{target} already exists; name another directory with --output")
    section = ModelSettings(path=str(folder), dtype="float32")
    use = Use(training=False, device="cpu", trust=trust)
    policy = load_model(section, use)
    merged = policy.model.merge_and_unload().to(base_dtype(section, use))
    with replacing(target) as part:
        merged.save_pretrained(part)
        policy.tokenizer.save_pretrained(part)
    return target


def _adapter_in(source: Path) -> Path:
    """The adapter directory of a run, or `source` itself."""
    if is_adapter(source):
        return source
    run = RunDirectory(source)
    if not run.is_run():
        raise ConfigError(f"{source} is neither a run directory nor an adapter directory")
    if not run.model.is_dir():
        raise ConfigError(f"{source} contains no model yet (agentsgym train --resume {source})")
    if not is_adapter(run.model):
        raise ConfigError(
            f"{source} trained whole weights, so {run.model} is a plain model already"
        )
    return run.model
