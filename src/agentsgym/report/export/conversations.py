"""The conversations of a rollout: what the model saw and said, one list of messages each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentsgym.report.export.selection import Filters
from agentsgym.types import Episode, Message, Rollout, Step
from agentsgym.types.text import clean_text


@dataclass(frozen=True, slots=True)
class Said:
    """One action or reflection of a conversation: `place` is the number of its message."""

    place: int
    episode: Episode
    step: Step


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages up to the agent's last one. It may go on over several episodes."""

    messages: tuple[Message, ...]
    said: tuple[Said, ...]


def conversations(rollout: Rollout) -> Iterator[Conversation]:
    """The conversations of a rollout. What no game can contain, in a foreign file, is left out."""
    messages: list[Message] = []
    said: list[Said] = []
    for episode in rollout.episodes:
        if not episode.continues:
            yield from _conversation(messages, said)
            messages, said = [], []
        known = len(messages)
        messages += [_clean(message) for message in episode.messages]
        places = [n for n in range(known, len(messages)) if messages[n]["role"] == "assistant"]
        if len(places) == len(episode.steps):
            said += [Said(n, episode, s) for n, s in zip(places, episode.steps, strict=True)]
        else:
            messages, said = [], []
    yield from _conversation(messages, said)


def _conversation(messages: Sequence[Message], said: Sequence[Said]) -> Iterator[Conversation]:
    if said:
        yield Conversation(tuple(messages[: said[-1].place + 1]), tuple(said))


def _clean(message: Message) -> Message:
    """A message of texts; a foreign file may hold anything."""
    return {
        "role": clean_text(str(message["role"])),
        "content": clean_text(str(message["content"])),
    }


def is_target(episode: Episode, step: Step, filters: Filters) -> bool:
    """Whether an action is an example of what to say, and not only context."""
    free = episode.score_weight == 0
    return not (filters.scored and free) and not (filters.no_malformed and is_malformed(step))


def is_malformed(step: Step) -> bool:
    """Whether the environment could not read an action: it says so of the action, or counts it as
    `unparsed`."""
    metrics = step.info.get("metrics")
    return step.malformed or bool(isinstance(metrics, Mapping) and metrics.get("unparsed"))
