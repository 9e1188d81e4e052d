"""The actions that an environment lists, as the answers that a model may give.

An action has one spelling, the tokenizer's, and ends with the end of the turn: so where one action
begins another, ending is a choice. An action that a model's answer cannot say is an error, and none
is left out.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from agentsgym.tokens.codec import Codec
from agentsgym.tokens.speech import ActionText
from agentsgym.types import Answer
from agentsgym.types.choices import Choices
from agentsgym.types.text import short_repr
from agentsgym.types.tool_actions import acting, plain_act


def choices_of(
    codec: Codec, tokenizer: Any, actions: Sequence[str], *, called: bool, whole: bool = False
) -> Choices:
    """The answers that say one of these actions, in plain text, or if they are `called` as the call
    of the tool `act`, which the codec has; chosen token by token, or as a `whole`. Raises
    ValueError for an action that no answer says."""
    return _choices(codec, tokenizer, tuple(actions), called, whole)


@lru_cache(maxsize=256)
def _choices(
    codec: Codec, tokenizer: Any, actions: tuple[str, ...], called: bool, whole: bool
) -> Choices:
    if not actions:
        raise ValueError("no action is admissible")
    try:
        spelled = (_spelled(codec, tokenizer, action, called) for action in actions)
        return Choices.of(spelled, whole=whole)
    except ValueError as error:
        if codec.turn_end:
            raise
        raise ValueError(f"{error}, and the tokenizer has no token that ends a turn") from None


@lru_cache(maxsize=1 << 17)
def _spelled(codec: Codec, tokenizer: Any, action: str, called: bool) -> tuple[int, ...]:
    """The ids of an answer that says the action, with the end of its turn."""
    read: str | None
    if called:
        ids = codec.encode_answer(acting(action), ended=True)
        read = plain_act(Answer(codec.answer(ids)[0]))
    else:
        ids = codec.encode_action(action) + codec.turn_end[-1:]
        read = _reader(codec, tokenizer)(ids, codec.ends)
    if read != action:
        raise ValueError(
            f"the admissible action {short_repr(action)} cannot be said: the model's answer would "
            f"be read as {short_repr(read)}"
        )
    return ids


@lru_cache(maxsize=16)
def _reader(codec: Codec, tokenizer: Any) -> ActionText:
    return ActionText(tokenizer, codec.turn_end)
