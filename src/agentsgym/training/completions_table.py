"""Rollouts as the lines of TRL's table of completions (`log_completions`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from agentsgym.types import Message, Rollout
from agentsgym.types.records import Floats

# The table is printed on a terminal, which obeys control characters, and stored as UTF-8, which
# has no lone surrogates: both are replaced by visible symbols.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_PICTURES |= dict.fromkeys([*range(0x7F, 0xA0), *range(0xD800, 0xE000)], 0xFFFD)


@dataclass(frozen=True, slots=True)
class CompletionLine:
    """One rollout: the conversation before its first action and from there on, its reward (NaN if
    it failed), and the mean advantage of its agent tokens."""

    prompt: list[Message]
    completion: list[Message]
    reward: float
    advantage: float


def completion_lines(
    rollouts: Sequence[Rollout], advantages: Sequence[Floats]
) -> list[CompletionLine]:
    """A line for each rollout; `advantages` has those of its rows, of shape (T,), in order."""
    remaining = iter(advantages)
    return [_line(rollout, [next(remaining) for _ in rollout.rows]) for rollout in rollouts]


def _line(rollout: Rollout, advantages: Sequence[Floats]) -> CompletionLine:
    messages = [printable(message) for message in conversation(rollout)]
    prompt = list(takewhile(lambda message: message["role"] != "assistant", messages))
    mean = mean_advantage(rollout, advantages)
    return CompletionLine(prompt, messages[len(prompt) :], rollout.final_reward, mean)


def mean_advantage(rollout: Rollout, advantages: Sequence[Floats]) -> float:
    """The mean over a rollout's agent tokens; `advantages` has those of its rows, shape (T,)."""
    masks = [row.agent_token_mask == 1 for row in rollout.rows]
    values = [a[mask] for a, mask in zip(advantages, masks, strict=True)]
    tokens = np.concatenate(values) if values else np.zeros(0)
    return float(tokens.mean()) if len(tokens) else 0.0


def conversation(rollout: Rollout) -> list[Message]:
    """All messages of a trial; each once."""
    return [message for episode in rollout.episodes for message in episode.messages]


def printable(message: Message) -> Message:
    """The message with visible symbols for control characters and lone surrogates."""
    return {"role": message["role"], "content": message["content"].translate(_PICTURES)}
