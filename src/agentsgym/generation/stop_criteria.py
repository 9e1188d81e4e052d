"""The end of an action: end-of-turn tokens and stop strings."""

from collections.abc import Iterable, Sequence
from typing import Any

_WINDOW = 16  # tokens decoded beyond the stop string's own length; pieces may be empty or partial


def end_of_turn_ids(tokenizer: Any, model: Any) -> tuple[int, ...]:
    """The tokenizer's end-of-sequence id and all ids in the model's generation config."""
    generation = getattr(model, "generation_config", None)
    named = getattr(generation, "eos_token_id", None)
    ids: set[int] = set(_as_ids(getattr(tokenizer, "eos_token_id", None))) | set(_as_ids(named))
    return tuple(sorted(ids))


def _as_ids(value: int | Iterable[int] | None) -> Iterable[int]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else value


def ends_with_stop(tokenizer: Any, token_ids: Sequence[int], stops: Sequence[str]) -> bool:
    """Whether the last of `token_ids` completed one of `stops` in the decoded text.

    The text is decoded without special tokens, as in results. The function is called after every
    token, so it is enough to decode a window at the end.
    """
    width = max(map(len, stops)) + _WINDOW
    text = tokenizer.decode(list(token_ids[-width:]), skip_special_tokens=True)
    return any(stop in text for stop in stops)
