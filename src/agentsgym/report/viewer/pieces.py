"""The text of each token of a vocabulary, without loading a model."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.runs.files import RunDirectory

_FILE = "tokenizer.json"
_MOST_BYTES = 1 << 27


@dataclass(frozen=True)
class Pieces:
    """Texts by token id. A token that is only a part of a character has its bytes as `\\xNN`; one
    that is unknown has its number. `special` are the ids of special tokens."""

    texts: Callable[[int], str | None] = lambda number: None
    special: frozenset[int] = frozenset()
    _known: dict[int, str] = field(default_factory=dict, repr=False)

    def of(self, ids: Iterable[int]) -> dict[int, str]:
        """The text of each of these ids."""
        return {number: self._text(number) for number in sorted(set(ids))}

    def _text(self, number: int) -> str:
        if number not in self._known:
            found = self.texts(number)
            self._known[number] = f"⟨{number}⟩" if found is None else found
        return self._known[number]


def find_tokenizer(directory: RunDirectory, is_inside: Callable[[Path], bool]) -> Path | None:
    """The run's own tokenizer file: that of its model, a checkpoint, the warm start, or the
    package's model that it started from."""
    folders = [directory.model, *(path for _, path in directory.all_checkpoints())]
    folders.append(directory.warm_start / "model")
    for folder in folders:
        path = folder / _FILE
        if path.is_file() and is_inside(path):
            return path
    return _of_builtin(directory, is_inside)


def _of_builtin(directory: RunDirectory, is_inside: Callable[[Path], bool]) -> Path | None:
    import yaml

    from agentsgym.runs.models.builtin import builtin_folder

    if not directory.config.is_file() or not is_inside(directory.config):
        return None
    try:
        stored = yaml.safe_load(directory.config.read_bytes())
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    model = stored.get("model") if isinstance(stored, dict) else None
    name = model.get("path") if isinstance(model, dict) else model
    if not isinstance(name, str) or not name.startswith("builtin:"):
        return None
    try:
        with builtin_folder(name.removeprefix("builtin:")) as folder:
            path = folder / _FILE
            return path if path.is_file() else None
    except ConfigError:
        return None


def load_pieces(path: Path | None, named: bool = False) -> Pieces:
    """The texts of a tokenizer file or of a directory with one; without a file that can be read,
    tokens have numbers only. Raises ConfigError for one that the user `named`."""
    if path is None:
        return Pieces()
    file = path / _FILE if path.is_dir() else path
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError("it is too large")
        return _pieces_of(file.read_text(encoding="utf-8"))
    except Exception as error:  # the Rust library raises bare Exceptions
        if named:
            raise ConfigError(f"{file} is not a tokenizer: {error}") from None
        return Pieces()


def _pieces_of(text: str) -> Pieces:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(text)
    kinds = _decoders(json.loads(text).get("decoder"))
    special = {n for n, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    readable = _from_bytes if "ByteLevel" in kinds else _from_words

    def piece(number: int) -> str | None:
        token = tokenizer.id_to_token(number) if 0 <= number < 1 << 32 else None
        if token is None or number in special:
            return token
        return readable(token)

    return Pieces(piece, frozenset(special))


def _decoders(decoder: Any) -> set[str]:
    if not isinstance(decoder, Mapping):
        return set()
    parts = decoder.get("decoders")
    return {str(decoder.get("type"))}.union(*map(_decoders, parts if parts else ()))


def _from_words(token: str) -> str:
    """A token of SentencePiece (`▁` is a space, `<0x0A>` a byte) or of a word list."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return _of_bytes(bytes([int(token[3:5], 16)]))
        except ValueError:
            return token
    return token.replace("▁", " ")


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
