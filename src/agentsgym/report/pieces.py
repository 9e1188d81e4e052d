"""The text of each token of a vocabulary, without loading a model."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.envs import ConfigError
from agentsgym.runs.builtin import builtin_folder
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.files.directory import opened

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_FILE = "tokenizer.json"
_MOST_BYTES = 1 << 27
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Pieces:
    """Texts by token id. A token that is only a part of a character has its bytes as `\\xNN`; one
    that is unknown has its number. `special` are the ids of special tokens."""

    def __init__(self, tokenizer: "Tokenizer | None" = None) -> None:
        self._tokenizer = tokenizer
        added = {} if tokenizer is None else tokenizer.get_added_tokens_decoder()
        self.special = frozenset(number for number, token in added.items() if token.special)
        decoder = None if tokenizer is None else json.loads(tokenizer.to_str()).get("decoder")
        self._read = _from_bytes if '"ByteLevel"' in json.dumps(decoder) else _from_words

    def of(self, ids: Iterable[int]) -> dict[int, str]:
        """The text of each of these ids."""
        return {number: self._text(number) for number in sorted(set(ids))}

    def _text(self, number: int) -> str:
        known = self._tokenizer is not None and 0 <= number < 1 << 32
        token = self._tokenizer.id_to_token(number) if self._tokenizer and known else None
        if token is None:
            return f"⟨{number}⟩"
        return token if number in self.special else self._read(token)


def find_tokenizer(directory: RunDirectory, settings: Mapping[str, Any]) -> Path | None:
    """The run's own tokenizer file: that of its model, a checkpoint, the warm start, or the
    package's model that its `settings` start from."""
    folders = [directory.model, *(path for _, path in directory.all_checkpoints())]
    folders.append(directory.warm_start / "model")
    for folder in folders:
        path = folder / _FILE
        if path.is_file():
            return path
    model = settings.get("model")
    name = model.get("path") if isinstance(model, dict) else model
    if isinstance(name, str) and name.startswith("builtin:"):
        with suppress(ConfigError):
            return builtin_folder(name.removeprefix("builtin:")) / _FILE
    return None


def load_pieces(path: Path | None, required: bool = False) -> Pieces:
    """The texts of a tokenizer file or of a directory with one; without a file that can be read,
    tokens have numbers only. Raises ConfigError for one that is `required`."""
    if path is None:
        return Pieces()
    file = path / _FILE if path.is_dir() else path
    try:
        from tokenizers import Tokenizer

        with opened(file) as stored:
            data = stored.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError("it is too large")
        return Pieces(Tokenizer.from_buffer(data))
    except Exception as error:  # the Rust library raises bare Exceptions
        if required:
            raise ConfigError(f"{file} is not a tokenizer: {error}") from None
        return Pieces()


def _from_words(token: str) -> str:
    """A token of SentencePiece (`▁` is a space, `<0x0A>` a byte) or of a word list."""
    byte = _BYTE.fullmatch(token)
    return _of_bytes(bytes.fromhex(byte[1])) if byte else token.replace("▁", " ")


def _from_bytes(token: str) -> str:
    """A token of a byte-level vocabulary, whose characters stand for bytes."""
    try:
        return _of_bytes(bytes(_BYTES[character] for character in token))
    except KeyError:
        return token


def _of_bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in data)


def _byte_characters() -> dict[str, int]:
    """The characters of GPT-2's vocabulary, which stand for bytes: printable ones for themselves,
    the others for U+0100 and up."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(b): b for b in own} | {chr(256 + n): b for n, b in enumerate(others)}


_BYTES = _byte_characters()
