"""What an agent's action says where it may call tools: the message of its conversation, the text
that the environment gets, and the messages that answer its calls.

Of sampled ids, the codec's parser says what a call is; words that look like one are words. A text
agent says an action as `ToolAction` reads it, or, with `action_form="tool"`, plainly; then it is
recorded as the call that a model would make.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentsgym.tokens import Codec
from agentsgym.types import ActionKind, GenerationResult, Message
from agentsgym.types.tool_actions import ToolAction, acting


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """An action as the `message` of the conversation and as `text`. If it is not `valid`, there is
    nothing that the environment could do. `metrics` count its calls of the tool `act`."""

    message: Message
    text: str
    valid: bool = True
    metrics: Mapping[str, float] = field(default_factory=dict)


def plain_action(action: GenerationResult) -> ParsedAction:
    """An action where there are no tools."""
    return ParsedAction(Message("assistant", action.text), action.text)


def tool_action(
    action: GenerationResult, codec: Codec | None, kind: ActionKind, first: int, *, acts: bool
) -> ParsedAction:
    """An action where there are tools: the environment's own, or with `acts` the one tool whose
    argument is the action. The ids of its calls count from `first`."""
    if codec is None or action.token_ids is None:
        called = acting(action.text) if acts else ToolAction.of_text(action.text)
        if kind == "reflection" or action.token_ids is not None:
            called = ToolAction(action.text)
        message, text = called.message(first), action.text
    else:
        parsed = codec.answer(action.token_ids, first)
        called = ToolAction.of_message(parsed.message, parsed.attempted)
        message, text = parsed.message, called.text
    if kind == "reflection":
        return ParsedAction(message, called.content)
    if not acts:
        return ParsedAction(message, text)
    plain = called.act
    metrics = called.metrics(executed=int(plain is not None))
    return ParsedAction(message, text if plain is None else plain, plain is not None, metrics)


def following(
    prompt: str | Sequence[Mapping[str, Any]], before: Sequence[Message]
) -> list[Message]:
    """What an environment says after the messages `before`. The k-th message of the role tool
    answers the k-th call of the answer before it, and a text answers each of the calls."""
    calls = before[-1].tool_calls if before else ()
    if isinstance(prompt, str):
        if not calls:
            return [Message("user", prompt)]
        prompt = [
            Message(role="tool", content=prompt, name=call["function"]["name"]) for call in calls
        ]
    numbers = iter([call["id"] for call in calls])
    messages: list[Message] = []
    for message in map(Message.of, prompt):
        known = message.role != "tool" or message.tool_call_id is not None
        number = None if known else next(numbers, None)
        messages.append(message if number is None else replace(message, tool_call_id=number))
    return messages
