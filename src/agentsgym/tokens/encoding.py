"""Encodes texts as `tokenizer.encode` does, at the cost of its backend."""

from typing import Any

from agentsgym.types import Tokenizer

_METHODS = ("encode", "_encode_plus")
_THEIRS = ("transformers.tokenization_utils_base", "transformers.tokenization_utils_tokenizers")


class Encoder:
    """The token ids of a text without special tokens around it.

    A third of the time of `tokenizer.encode` goes into checking arguments. Where the method is
    transformers' own and the backend in the state that it would set, the backend is called at once.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer: Any = tokenizer
        self._direct = _has_backend(tokenizer) and is_theirs(tokenizer, *_METHODS)

    def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of the text."""
        tokenizer = self._tokenizer
        if self._direct and _is_untouched(tokenizer):
            encoded = tokenizer.backend_tokenizer.encode_batch_fast(
                [text], add_special_tokens=False
            )
            return tuple(encoded[0].ids)
        return tuple(tokenizer.encode(text, add_special_tokens=False))


def is_theirs(tokenizer: Any, *methods: str) -> bool:
    """Whether these methods are those that transformers gives its own tokenizers. A wrapper takes
    over the name of a method's module, but not its globals."""
    found = [getattr(getattr(type(tokenizer), name, None), "__globals__", {}) for name in methods]
    theirs = all(variables.get("__name__") in _THEIRS for variables in found)
    return theirs and getattr(tokenizer, "__dict__", {}).keys().isdisjoint(methods)


def _has_backend(tokenizer: Any) -> bool:
    return hasattr(getattr(tokenizer, "backend_tokenizer", None), "encode_batch_fast")


def _is_untouched(tokenizer: Any) -> bool:
    """Whether the backend neither truncates nor pads, and reads special tokens as `encode` does."""
    backend = tokenizer.backend_tokenizer
    return (
        backend.truncation is None
        and backend.padding is None
        and backend.encode_special_tokens == tokenizer.split_special_tokens
        and "encode" not in vars(tokenizer)
    )
