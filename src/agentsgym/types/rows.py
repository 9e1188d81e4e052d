"""Rows of tokens: what the model read as one sequence, with the places of the agent's answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentsgym.types.supports import NO_SUPPORTS, Supports

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StepSpan:
    """The position of one step's agent tokens in a row: from `start` to before `stop`."""

    episode: int
    step: int
    start: int
    stop: int

    @property
    def key(self) -> tuple[int, int]:
        """Which step of its rollout: (episode, step)."""
        return self.episode, self.step

    @property
    def length(self) -> int:
        return self.stop - self.start


def chosen(spans: Sequence[StepSpan], supports: Supports) -> list[Ints]:
    """The positions of the agent tokens of each span: those that were a choice."""
    every = [np.arange(span.start, span.stop) for span in spans]
    if not len(supports):
        return every
    return [at[~np.isin(at, supports.forced)] for at in every]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One sequence of T tokens as the model sees it.

    `token_ids` int32 and `logprobs` float32 (nats, 0.0 on tokens that were not sampled) have shape
    (T,). `spans` lists the steps whose tokens carry loss in this row, without the tokens that were
    forced; `supports` say what tokens were chosen from. `begins` and `rewrites` are those of its
    first step (`Step`). `sampled` is
    False if the row contains a text agent's words, which the environment tokenized: their
    `logprobs` are 0.0 and have no meaning. `given_rewards` (float64, shape (T,)) are rewards that
    an environment put on the tokens itself; without them they follow from the steps
    (`reward_placement`). `failed` is that of its rollout: then no token carries loss. `nodes` are
    the numbers in its rollout of the steps whose own tokens it has, one after the other; the first
    `shared` tokens are those of an earlier row too, or, in a branch, of the rollout that it left.
    """

    session_id: str
    group: int
    rollout: int
    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    spans: tuple[StepSpan, ...]
    begins: str = "episode"
    sampled: bool = True
    rewrites: str = ""
    given_rewards: Floats | None = None
    failed: bool = False
    nodes: tuple[int, ...] = ()
    shared: int = 0
    supports: Supports = NO_SUPPORTS

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", np.asarray(self.token_ids, np.int32))
        object.__setattr__(self, "logprobs", np.asarray(self.logprobs, np.float32))
        if self.given_rewards is not None:
            object.__setattr__(self, "given_rewards", np.asarray(self.given_rewards, np.float64))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return all(equal(getattr(self, name), getattr(other, name)) for name in Row.__slots__)

    @property
    def agent_token_mask(self) -> Ints:
        """1 for each token of a span that was a choice, 0 for context and in a failed rollout;
        shape (T,)."""
        mask = np.zeros(len(self.token_ids), np.int64)
        if not self.failed:
            for span in self.spans:
                mask[span.start : span.stop] = 1
            mask[self.supports.forced] = 0
        return mask

    @property
    def agent_tokens(self) -> int:
        return 0 if self.failed else self.choices

    @property
    def choices(self) -> int:
        """Number of tokens that the agent chose, in a failed rollout too."""
        if not len(self.supports):
            return sum(span.length for span in self.spans)
        return sum(map(len, chosen(self.spans, self.supports)))

    @property
    def prompt_length(self) -> int:
        """Number of tokens before the first step's answer (T if there is none)."""
        starts = [span.start for span in self.spans if span.length and not self.failed]
        return min(starts, default=len(self.token_ids))

    @property
    def episodes(self) -> tuple[int, ...]:
        return tuple(span.episode for span in self.spans)

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(span.step for span in self.spans)


def equal(one: Any, other: Any) -> bool:
    """Whether two fields of a row are equal; NaN equals NaN, as an object does itself."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return bool(one == other) if not isinstance(one, np.ndarray) else False


Chain = tuple[tuple[int, ...], list[int]]


def chains(parents: Sequence[int | None]) -> list[Chain]:
    """A forest of nodes, each with the number of an earlier one as its parent, or None, as chains:
    a node goes on after its parent, unless another one does already. A chain has the path to the
    parent of its first node, and its own nodes; each node is in one chain's own."""
    result: list[Chain] = []
    places: list[tuple[int, int]] = []  # of each node: its chain, and its number in it
    for node, parent in enumerate(parents):
        chain, number = (len(result), -1) if parent is None else places[parent]
        if parent is None:
            result.append(((), []))
        elif number + 1 < len(result[chain][1]):
            shared, own = result[chain]
            chain = len(result)
            result.append(((*shared, *own[: number + 1]), []))
        result[chain][1].append(node)
        places.append((chain, len(result[chain][1]) - 1))
    return result


def joined(values: NDArray[Any], pieces: Sequence[slice]) -> NDArray[Any]:
    """The values at these places, one after the other: a view where the places follow each other,
    else a copy."""
    if all(one.stop == other.start for one, other in pairwise(pieces)):
        return values[pieces[0].start : pieces[-1].stop]
    return np.concatenate([values[piece] for piece in pieces])


# -- the trainer's numbers for tokens --------------------------------------------------------------


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
