"""A digest of a model's weights, to recognize a model that was trained on."""

import hashlib
from pathlib import Path

_SUFFIXES = (".safetensors", ".bin", ".gguf")
_READ = 1 << 20


def weights_digest(path: str) -> str | None:
    """A digest of the weight files in a directory: names, sizes, and the first and the last MiB of
    each. None if there are none here, as for a model on a hub."""
    folder = Path(path)
    files = sorted(f for f in folder.glob("*") if f.suffix in _SUFFIXES) if folder.is_dir() else []
    if not files:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(_READ))
            opened.seek(max(0, size - _READ))
            digest.update(opened.read(_READ))
    return digest.hexdigest()
