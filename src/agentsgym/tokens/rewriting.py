"""What a chat template changed of a conversation when it rewrote history."""

from collections.abc import Iterator, Sequence

from agentsgym.types import Message

_END_OF_THOUGHT = "</think>"


def rewriting(was: str, now: str, messages: Sequence[Message]) -> str:
    """What changed between two renderings, in a word: "thoughts" (those of an earlier answer are
    dropped), "answer" (the text of the last answer changed), "opening" (what the template writes
    before it) or "earlier" (anything before).

    `was` is the context before the last answer, `messages[-2]`, and that answer; `now` is the whole
    conversation as it is rendered now.
    """
    if any(thought in was and thought not in now for thought in _thoughts(messages)):
        return "thoughts"
    before = len(was) - len(messages[-2]["content"])
    pairs = enumerate(zip(was, now, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(was), len(now)))
    if at > before:
        return "answer"
    said = messages[-3]["content"]
    read = was.rfind(said, 0, before)
    return "opening" if at >= read + len(said) else "earlier"


def _thoughts(messages: Sequence[Message]) -> Iterator[str]:
    """The texts that the agent thought."""
    for message in messages:
        thought, found, _ = message["content"].partition(_END_OF_THOUGHT)
        if message["role"] == "assistant" and found and (text := thought.strip()):
            yield text.removeprefix("<think>").strip() or text
