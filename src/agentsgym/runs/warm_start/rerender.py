"""The rows of a stored game, written anew by another model's codec from the game's texts."""

from collections.abc import Sequence
from dataclasses import replace

from agentsgym.tokens import Codec, DraftRow, Transcript
from agentsgym.types import Episode, GenerationResult, Message, Rollout, Row
from agentsgym.types.text import clean_text

_MOST_CHARACTERS = 4_000_000
_ANSWERS = {"user": "assistant", "assistant": "user"}


def rerendered(rollout: Rollout, codec: Codec, max_tokens: int | None = None) -> Rollout:
    """The rollout with the rows that a text agent with these words would have got.

    Its own token ids are not read, so the run may be another model's. Raises ValueError if the
    conversation is not one of a game, or has a row of more than `max_tokens`.
    """
    transcript = Transcript(codec)
    before: Sequence[Message] = ()
    for episode in rollout.episodes:
        messages = [_clean(message) for message in episode.messages]
        goes_on = bool(before) and messages[: len(before)] == list(before)
        if not goes_on:
            transcript.restart()
        _write(transcript, episode, messages, len(before) if goes_on else 0, rollout.session_id)
        before = messages
    if any(max_tokens is not None and len(row.token_ids) > max_tokens for row in transcript.rows):
        raise ValueError("a row is longer than max_rollout_tokens")
    return replace(rollout, rows=tuple(_row(rollout, row) for row in transcript.rows))


def _write(
    transcript: Transcript,
    episode: Episode,
    messages: Sequence[Message],
    known: int,
    session_id: str,
) -> None:
    """Add an episode's messages from number `known` on."""
    if sum(len(message["content"]) for message in messages) > _MOST_CHARACTERS:
        raise ValueError("the conversation is too long")
    answers = [k for k in range(known, len(messages)) if messages[k]["role"] == "assistant"]
    if len(answers) != len(episode.steps):
        raise ValueError("the conversation has another number of actions than the game")
    _check_turns(messages[1:] if messages[:1] and messages[0]["role"] == "system" else messages)
    for step, k in enumerate(answers):
        transcript.observe(messages[:k])
        said = GenerationResult(session_id, None, None, messages[k]["content"])
        transcript.act(said, episode.index, step)


def _check_turns(messages: Sequence[Message]) -> None:
    expected = "user"
    for message in messages:
        if message["role"] != expected:
            raise ValueError(f"a message has the role {message['role']!r:.40}, not {expected!r}")
        expected = _ANSWERS[expected]


def _clean(message: Message) -> Message:
    if not isinstance(message["content"], str):
        raise ValueError("a message's content is no text")
    return {"role": message["role"], "content": clean_text(message["content"])}


def _row(rollout: Rollout, draft: DraftRow) -> Row:
    length = len(draft.token_ids)
    return Row(
        session_id=rollout.session_id,
        group=rollout.group,
        rollout=rollout.index,
        token_ids=tuple(draft.token_ids),
        agent_token_mask=tuple(draft.mask),
        logprobs=(0.0,) * length,
        per_token_rewards=(0.0,) * length,
        spans=tuple(draft.spans),
        begins=draft.begins,
        sampled=False,
        rewrites=draft.rewrites,
    )
