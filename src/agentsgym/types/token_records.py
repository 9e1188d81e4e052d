"""The trainer's numbers for the tokens of a rollout."""

from collections.abc import Mapping
from dataclasses import dataclass

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepNumbers:
    """The numbers of the N tokens of one step's answer, each of length N; of one that was forced
    they are 0, and its ratio is 1.

    `logprobs` (nats) are the trainer's, to be compared with the sampler's: before any update if the
    generation is used for several, else in the update. `ratios` are the importance ratios in the
    loss when the rollout was last trained on, and `entropies` (nats) those of the policy then, None
    if the loss did not compute them.
    """

    logprobs: Numbers
    ratios: Numbers
    entropies: Numbers | None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The numbers of the rollout `session_id` by (episode, step)."""

    session_id: str
    steps: Mapping[tuple[int, int], StepNumbers]
