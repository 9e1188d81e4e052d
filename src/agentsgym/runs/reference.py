"""What KL is measured against in a run, also in one that goes on."""

import shutil
from pathlib import Path
from typing import Any


def name_reference(model: Any, source: str, folder: Path) -> None:
    """Let `model` name the weights that its run began with, which TRL loads as the reference.

    A model that goes on was loaded from its checkpoint and would be its own reference. `source` is
    the run's `model`; where the run made that itself, a copy is kept in `folder`.
    """
    if source == "tiny" or source.startswith("builtin:"):
        if not folder.is_dir():
            _save(model, folder)
        source = str(folder)
    model.config._name_or_path = source


def _save(model: Any, folder: Path) -> None:
    """Save whole or not at all."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    part.rename(folder)
