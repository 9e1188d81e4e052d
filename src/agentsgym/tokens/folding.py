"""Conversations of programs, in the roles that a chat template takes.

Clients send system messages anywhere, several at once, and turns of one role one after another.
A template that shows all of these in their places gets them as they are. For another one they are
folded, so that each message is shown in its place and the beginning of a conversation is folded
alike whatever follows:

- system messages before all others become one, which is the user's if the template takes none;
- a later system message is the user's, and so is the only message of a conversation;
- where roles must alternate, messages of one role that follow each other are one.

Texts that become one have an empty line between them.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from agentsgym.tokens.codec import Codec, TemplateCodec
from agentsgym.tokens.template import ChatTemplate, RolesTaken, TemplateFailed
from agentsgym.types import Message


@contextmanager
def folded(codec: Codec, messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """The messages as the codec's template takes them. If it refuses them nevertheless, the
    TemplateFailed that ends the context names the message and the setting."""
    if not isinstance(codec, TemplateCodec):
        yield messages
        return
    template = codec.template
    try:
        yield fold(messages, template.roles_taken)
    except TemplateFailed as error:
        raise TemplateFailed(_blamed(template, messages, error)) from error


def fold(messages: Sequence[Message], taken: RolesTaken) -> Sequence[Message]:
    """The messages in roles that are taken; the same sequence if all are."""
    roles = [message.role for message in messages]
    if not taken.system_alone and {*roles} == {"system"}:
        messages = [Message("user", _joined(messages))]
    elif not taken.system_anywhere and "system" in roles:
        first = next((at for at, role in enumerate(roles) if role != "system"), len(roles))
        role = "system" if taken.system else "user"
        begun = [Message(role, _joined(messages[:first]))] if first else []
        messages = [*begun, *map(_of_user, messages[first:])]
    return messages if taken.repeated else _alternating(messages)


def _of_user(message: Message) -> Message:
    return replace(message, role="user") if message.role == "system" else message


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """The messages; those of the user, and those of the assistant, that follow each other are
    one."""
    turns: list[Message] = []
    for message in messages:
        role = message.role
        if turns and role == turns[-1].role and role in ("user", "assistant"):
            both = [turns[-1], message]
            calls = (*turns[-1].tool_calls, *message.tool_calls)
            turns[-1] = replace(turns[-1], content=_joined(both), tool_calls=calls)
        else:
            turns.append(message)
    return turns


def _joined(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.content for message in messages if message.content)


def _blamed(template: ChatTemplate, messages: Sequence[Message], error: TemplateFailed) -> str:
    """What was wrong, with the first message that the template refuses after those before it."""

    def fails(count: int) -> bool:
        try:
            template.render(fold(messages[:count], template.roles_taken))
        except TemplateFailed:
            return True
        return False

    number = 1 + bisect_left(range(1, len(messages)), True, key=fails)
    role = messages[number - 1].role
    return (
        f"message {number} of the conversation ({role}): {error}; leave it out, or give the model "
        "another template (model.chat_template)"
    )
