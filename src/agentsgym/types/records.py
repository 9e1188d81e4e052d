"""The nouns of play: steps, episodes, rollouts. No tensors."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agentsgym.types.foreign import truth
from agentsgym.types.messages import Message, ToolSchema, as_text, spoken
from agentsgym.types.rows import Floats, Row, StepSpan, chains, equal, joined
from agentsgym.types.supports import NO_SUPPORTS, Supports, joined_supports

ActionKind = Literal["action", "reflection"]


@dataclass(frozen=True, slots=True)
class Step:
    """A node of a rollout's tree: what the agent read, what it answered, and what the environment
    made of that.

    Its conversation is that of the step `parent` (a number in `Rollout.nodes`; None: a new one) and
    the new `messages`, which `answer` answers; `tools` were offered with it. The tokens that it
    read are those of its parent and its own (`Rollout.at`), unless its own are the `whole` context:
    without a parent, and where the template rewrote what that had read. `begins` is the reason if
    it begins a row: "episode" for a new context, "note" if the episode goes on from a note,
    "template" if the chat template rewrote the history (`rewrites` says what of it: "thoughts",
    "answer", "opening" or "earlier"), or a reason of a program (`tokens.tree.REASONS`). `sampled`
    is False for a text agent's words, which the environment tokenized; `policy_version` is the
    version of the weights that ended the answer.

    `index` counts from 0 within the episode. `kind` "reflection" marks what is no action of the
    game: a reflection after the episode, or a note in it (`context_limit`). `said` is the action as
    the environment got it, if it is not what the answer says.
    The `reward` of an episode's last step includes the part of `_calculate_reward`'s result that
    exceeds the sum of the steps. `penalty` is what the `reward` lost because the action was
    malformed. `anchor` is the environment's key for the state before the step, or None.
    `token_rewards` are per-token rewards from the environment, or None; `given_rewards` those that
    an environment which plays its episodes itself put on the step's own tokens.
    """

    index: int
    messages: tuple[Message, ...]
    answer: Message | None
    reward: float
    done: bool
    info: Mapping[str, Any] = field(default_factory=dict)
    malformed: bool = False
    truncated: bool = False
    kind: ActionKind = "action"
    anchor: str | None = None
    token_rewards: tuple[float, ...] | None = None
    penalty: float = 0.0
    said: str | None = None
    parent: int | None = None
    begins: str = "episode"
    rewrites: str = ""
    whole: bool = True
    tools: tuple[ToolSchema, ...] = ()
    sampled: bool = True
    policy_version: int = 0
    given_rewards: tuple[float, ...] | None = None

    @property
    def observation(self) -> str:
        """The new messages for the eyes of a reader, without the system's that opens them: the text
        of a single one, else each with its role."""
        opened = len(self.messages) > 1 and self.messages[0].role == "system"
        return as_text(self.messages[opened:])

    @property
    def action(self) -> str:
        """The action as the environment got it."""
        if self.said is not None:
            return self.said
        return "" if self.answer is None else spoken(self.answer)

    @property
    def turn(self) -> tuple[Message, ...]:
        """Its new messages and its answer."""
        return self.messages if self.answer is None else (*self.messages, self.answer)

    @property
    def unread(self) -> bool:
        """Whether the environment could not read the action: it says so of it, or counts it as
        `unparsed`."""
        metrics = self.info.get("metrics")
        return self.malformed or (isinstance(metrics, Mapping) and bool(metrics.get("unparsed")))


@dataclass(frozen=True, slots=True)
class Episode:
    """One play of a task. `score_weight` is 0.0 in a free shot, else 1.0.

    `reward` is the raw episode reward (the sum of its steps' rewards). `stop_reason` is "done" or
    the environment's own name for an ending, "max_steps", "malformed", "max_rollout_tokens" or
    "error". `unanswered` is what the agent read, and perhaps answered, without an answer of the
    environment: if an error ended the episode, or an environment wrote it itself.
    """

    index: int
    steps: tuple[Step, ...]
    reward: float
    score_weight: float
    stop_reason: str
    unanswered: Step | None = None

    @property
    def nodes(self) -> tuple[Step, ...]:
        """The steps, and what has no answer."""
        return self.steps if self.unanswered is None else (*self.steps, self.unanswered)

    @property
    def continues(self) -> bool:
        """Whether its conversation goes on after that of the episode before."""
        return bool(self.nodes) and self.nodes[0].parent is not None

    @property
    def system(self) -> str | None:
        """The message of the system that opens it."""
        first = self.nodes[0].messages[:1] if self.nodes and not self.continues else ()
        return first[0].content if first and first[0].role == "system" else None

    @property
    def messages(self) -> list[Message]:
        """The episode's own messages in the order of play."""
        return [message for step in self.nodes for message in step.turn]

    @property
    def win(self) -> bool | None:
        """`info["win"]` of the last action; None if the environment set no truth value."""
        return truth(self.actions[-1].info.get("win")) if self.actions else None

    @property
    def actions(self) -> tuple[Step, ...]:
        """The steps without notes, and without the reflection that may follow them."""
        return tuple(step for step in self.steps if step.kind == "action")


_NO_IDS, _NO_LOGPROBS = np.zeros(0, np.int32), np.zeros(0, np.float32)
Turns = list[tuple[Episode, Step, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Rollout:
    """One sampled trial: `group` is the number of its task, `index` its number in the group.

    Its steps are a tree (`Step.parent`); `nodes` numbers them in the order of play. On its tape
    each token stands once, in that order: `token_ids` int32 and `logprobs` float32 (nats, 0.0 on
    tokens that were not sampled), of shape (N,). `at` (int32, shape (nodes, 3)) has the place of
    each node's own tokens: from `start` what it read, from `acts` to before `stop` its answer.
    `supports` say what the tokens of answers were chosen from. Rows
    and conversations are paths in the tree. In a branch the first `replayed` nodes are those of the
    rollout from which it was played on: their tokens are context. `reward_placement` and
    `final_reward_placement` are the environment's settings `reward_placement` and `final_reward`.

    Raises ValueError if the nodes' own tokens are not the tape, a parent is no earlier node, a
    token is not among those that it was chosen from, or there are fewer nodes than `replayed`.
    """

    session_id: str
    group: int
    index: int
    env_class_path: str
    env_config: Mapping[str, Any]
    task_data: Mapping[str, Any]
    episodes: tuple[Episode, ...]
    token_ids: NDArray[np.int32] = field(default_factory=lambda: _NO_IDS)
    logprobs: NDArray[np.float32] = field(default_factory=lambda: _NO_LOGPROBS)
    at: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 3), np.int32))
    supports: Supports = NO_SUPPORTS
    error: str | None = None
    seed: int = 0
    reward_placement: str = "spread"
    final_reward_placement: str = "last_step"
    replayed: int = 0
    _rows: list[Row] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        nodes = self.nodes
        at = self.at if len(self.at) else np.zeros((len(nodes), 3), np.int32)
        for name, values, kind in (
            ("token_ids", self.token_ids, np.int32),
            ("logprobs", self.logprobs, np.float32),
            ("at", at, np.int32),
        ):
            object.__setattr__(self, name, np.asarray(values, kind))
        tokens = len(self.token_ids)
        if len(self.logprobs) != tokens or self.at.shape != (len(nodes), 3):
            raise ValueError(
                f"{tokens} tokens and {len(nodes)} nodes have {len(self.logprobs)} "
                f"log-probabilities and places of shape {self.at.shape}"
            )
        start, acts, stop = self.at.T
        edges = [0, *stop.tolist()]
        if start.tolist() != edges[:-1] or edges[-1] != tokens:
            raise ValueError("the places of the nodes do not follow each other on the tape")
        if ((start > acts) | (acts > stop)).any():
            raise ValueError("an answer does not lie within its node's own tokens")
        if not self.supports.fits(self.token_ids):
            raise ValueError("a token is not among the ids that it was chosen from")
        if not 0 <= self.replayed <= len(nodes):
            raise ValueError(f"{self.replayed} of {len(nodes)} nodes cannot be replayed")
        places = zip(nodes, self.at.tolist(), strict=True)
        for number, (step, (begin, says, end)) in enumerate(places):
            if step.parent is None and not step.whole:
                raise ValueError(f"node {number} has no parent and not its whole context")
            if step.parent is not None and not 0 <= step.parent < number:
                raise ValueError(f"node {number} has the parent {step.parent}")
            for name, rewards, most in (
                ("token_rewards", step.token_rewards, end - says),
                ("given_rewards", step.given_rewards, end - begin),
            ):
                if rewards is not None and tokens and len(rewards) != most:
                    raise ValueError(
                        f"{len(rewards)} {name} of node {number} are for {most} tokens"
                    )

    def __reduce__(self) -> tuple[Any, ...]:
        return Rollout, tuple(getattr(self, name) for name in _STORED)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rollout):
            return NotImplemented
        return all(equal(getattr(self, name), getattr(other, name)) for name in _STORED)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all episodes, in the order of play."""
        return tuple(step for episode in self.episodes for step in episode.steps)

    @property
    def nodes(self) -> tuple[Step, ...]:
        """The steps, and what has no answer, in the order of play."""
        return tuple(step for episode in self.episodes for step in episode.nodes)

    @property
    def policy_version(self) -> int:
        """The version of the weights that ended the last answer; 0 without one."""
        return next((step.policy_version for step in reversed(self.nodes)), 0)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The sequences of tokens as the model read them; each answer carries loss in one of them,
        that in which it was sampled."""
        if not self._rows:
            self._rows.extend(_rows_of(self))
        return tuple(self._rows)

    def without_tokens(self) -> "Rollout":
        """The rollout without its tokens, which are long."""
        nowhere = np.zeros_like(self.at)
        return replace(
            self, token_ids=_NO_IDS, logprobs=_NO_LOGPROBS, at=nowhere, supports=NO_SUPPORTS
        )

    def by_row(self, values: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Numbers of the tape's tokens, shape (N,), as those of each row's, shape (T,): 0 on what
        it shares with an earlier one."""
        for row in self.rows:
            pieces = [slice(start, stop) for start, _, stop in self.at[list(row.nodes)].tolist()]
            own = joined(values, pieces)
            if row.shared:
                own = np.concatenate([np.zeros(row.shared, own.dtype), own[row.shared :]])
            yield own

    def on_tape(self, of_rows: Sequence[Floats]) -> Floats:
        """Numbers of each row's tokens, shape (T,), on the tape's, shape (N,)."""
        values = np.zeros(len(self.token_ids))
        for row, numbers in zip(self.rows, of_rows, strict=True):
            begin = 0
            for start, _, stop in self.at[list(row.nodes)].tolist():
                end = begin + stop - start
                if begin >= row.shared:
                    values[start:stop] = numbers[begin:end]
                begin = end
        return values

    @property
    def failed(self) -> bool:
        """Whether an exception ended the rollout; its tokens then carry no loss."""
        return self.error is not None

    @property
    def final_reward(self) -> float:
        """Mean raw reward of the scored episodes; NaN if the rollout failed."""
        scored = [episode.reward for episode in self.episodes if episode.score_weight > 0]
        if self.failed or not scored:
            return math.nan
        return sum(scored) / len(scored)

    @property
    def agent_tokens(self) -> int:
        """Number of agent tokens in all rows."""
        return sum(row.agent_tokens for row in self.rows)

    def conversations(self) -> list[tuple[list[Message], Turns]]:
        """Each conversation of the trial, with its steps and their episodes, and the number of
        messages up to and including the step's answer. A branch begins with what it shares, whose
        steps are those of the conversation that it leaves."""
        placed = [(episode, step) for episode in self.episodes for step in episode.nodes]
        result: list[tuple[list[Message], Turns]] = []
        for shared, own in chains([step.parent for _, step in placed]):
            messages = [message for number in shared for message in placed[number][1].turn]
            turns: Turns = []
            for episode, step in (placed[number] for number in own):
                messages += step.turn
                if step is not episode.unanswered:
                    turns.append((episode, step, len(messages)))
            result.append((messages, turns))
        return result


_STORED = tuple(name for name in Rollout.__slots__ if name != "_rows")


def _rows_of(rollout: Rollout) -> Iterator[Row]:
    placed = [(episode, step) for episode in rollout.episodes for step in episode.nodes]
    at = rollout.at.tolist()
    for shared, own in chains([None if step.whole else step.parent for _, step in placed]):
        numbers, begins = (*shared, *own), placed[own[0]][1]
        shared = numbers[: max(len(shared), bisect_left(numbers, rollout.replayed))]
        if all(at[number][0] == at[number][2] for number in numbers):
            continue  # nothing was tokenized
        before = sum(at[number][2] - at[number][0] for number in shared)
        spans, length = [], before
        for number in numbers[len(shared) :]:
            start, acts, stop = at[number]
            episode, step = placed[number]
            if step is not episode.unanswered:
                span = length + acts - start, length + stop - start
                spans.append(StepSpan(episode.index, step.index, *span))
            length += stop - start
        steps = [placed[number][1] for number in numbers]
        pieces = [slice(at[number][0], at[number][2]) for number in numbers]
        logprobs = joined(rollout.logprobs, pieces)
        if shared:
            logprobs = np.concatenate([np.zeros(before, np.float32), logprobs[before:]])
        yield Row(
            rollout.session_id,
            rollout.group,
            rollout.index,
            joined(rollout.token_ids, pieces),
            logprobs,
            tuple(spans),
            begins=begins.begins,
            sampled=all(step.sampled for step in steps if step.answer is not None),
            rewrites=begins.rewrites,
            given_rewards=_given(steps, pieces),
            failed=rollout.failed,
            nodes=numbers,
            shared=before,
            supports=_supports_of(rollout, pieces, before),
        )


def _supports_of(rollout: Rollout, pieces: Sequence[slice], shared: int) -> Supports:
    """The supports of a row's own tokens, those after the `shared` ones."""
    if not len(rollout.supports):
        return NO_SUPPORTS
    parts, length = [], 0
    for piece in pieces:
        if length >= shared:
            parts.append(rollout.supports.between(piece.start, piece.stop, length))
        length += piece.stop - piece.start
    return joined_supports(parts)


def _given(steps: Sequence[Step], pieces: Sequence[slice]) -> Floats | None:
    """The rewards that an environment put on the tokens of these steps itself."""
    if all(step.given_rewards is None for step in steps):
        return None
    nothing = [(0.0,) * (piece.stop - piece.start) for piece in pieces]
    own = [s.given_rewards or zeros for s, zeros in zip(steps, nothing, strict=True)]
    return np.concatenate([np.asarray(values, np.float64) for values in own])
