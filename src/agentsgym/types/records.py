"""The nouns of play: messages, steps, episodes, trials, rows of tokens, rollouts. No tensors."""

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NotRequired, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from agentsgym.types.foreign import truth

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

ActionKind = Literal["action", "reflection"]


class ToolFunction(TypedDict):
    """What a tool call calls: `arguments` by name, as JSON values."""

    name: str
    arguments: dict[str, Any]


class ToolCall(TypedDict):
    """One call of a tool in an answer, in the form that chat templates read."""

    type: Literal["function"]
    id: str
    function: ToolFunction


class Message(TypedDict):
    """One turn of a conversation; `role` is system, user, assistant or tool.

    An answer of the role assistant may have `tool_calls`; a message of the role tool, the result of
    one, has its id (`tool_call_id`) and the tool's `name`.
    """

    role: str
    content: str
    tool_calls: NotRequired[list[ToolCall]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]


def copy_message(message: Message) -> Message:
    """A copy of a message that can be changed without changing the record."""
    return deepcopy(message) if "tool_calls" in message else message.copy()


def count_calls(messages: Sequence[Message]) -> int:
    """How many calls of tools a conversation has."""
    return sum(len(message.get("tool_calls", ())) for message in messages)


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
        """Number of agent tokens."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Step:
    """One agent action and the environment's answer to it.

    `index` counts from 0 within the episode. `kind` "reflection" marks what is no action of the
    game: a reflection after the episode, or a note in it (`context_limit`).
    The `reward` of an episode's last step includes the part of `_calculate_reward`'s result that
    exceeds the sum of the steps. `penalty` is what the `reward` lost because the action was
    malformed. `anchor` is the environment's key for the state before the step, or None.
    `token_rewards` are per-token rewards from the environment, or None. `policy_version` is the
    version of the weights that ended the action.
    """

    index: int
    observation: str
    action: str
    reward: float
    done: bool
    info: Mapping[str, Any] = field(default_factory=dict)
    malformed: bool = False
    truncated: bool = False
    kind: ActionKind = "action"
    anchor: str | None = None
    token_rewards: tuple[float, ...] | None = None
    penalty: float = 0.0
    policy_version: int = 0

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
    "error". `continues` says that its conversation goes on after that of the episode before, and
    `system` is the message that opens it. `written` are its messages where they do not follow from
    its steps: if an error left one without an answer, or an environment wrote them itself.
    Of a program, whose calls come with whole conversations, they are one conversation after the
    other, each with all that continued it: `starts` has the number of each one's first message, and
    `ends` the number of messages up to and including the action of each step.
    """

    index: int
    steps: tuple[Step, ...]
    reward: float
    score_weight: float
    stop_reason: str
    continues: bool = False
    system: str | None = None
    written: tuple[Message, ...] | None = None
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    @property
    def messages(self) -> list[Message]:
        """The episode's own messages, made anew: the system message, and an observation and an
        action for each step."""
        if self.written is not None:
            return [copy_message(message) for message in self.written]
        messages = [] if self.system is None else [Message(role="system", content=self.system)]
        for step in self.steps:
            messages.append(Message(role="user", content=step.observation))
            messages.append(Message(role="assistant", content=step.action))
        return messages

    @property
    def win(self) -> bool | None:
        """`info["win"]` of the last action; None if the environment set no truth value."""
        return truth(self.actions[-1].info.get("win")) if self.actions else None

    @property
    def actions(self) -> tuple[Step, ...]:
        """The steps without notes, and without the reflection that may follow them."""
        return tuple(step for step in self.steps if step.kind == "action")

    def conversations(self) -> Iterator[tuple[list[Message], list[tuple[Step, int]]]]:
        """The parts of `messages`, of which a note in the episode ends one: each with its steps,
        and the number of its messages up to and including the step's action."""
        messages, ends = self.messages, self.ends or self._ends()
        for begin, stop in pairwise([*self.starts, len(messages)]):
            places = zip(self.steps, ends, strict=False)
            yield messages[begin:stop], [(s, e - begin) for s, e in places if begin < e <= stop]
        if self.starts:
            return
        notes = [k + 1 for k, step in enumerate(self.steps[:-1]) if step.kind == "reflection"]
        begin = 0
        for first, last in pairwise([0, *notes, len(self.steps)]):
            stop = ends[last - 1] if last in notes else len(messages)
            own = zip(self.steps[first:last], ends[first:last], strict=True)
            yield messages[begin:stop], [(step, end - begin) for step, end in own]
            begin = stop

    def _ends(self) -> list[int]:
        """The number of messages up to and including the action of each step."""
        own, messages = len(self.steps), self.messages
        ends = [i + 1 for i, message in enumerate(messages) if message["role"] == "assistant"]
        if self.stop_reason == "error":
            ends = ends[:own]  # drop an action that got no answer
        if len(ends) < own:  # an override of the episode loop returned fewer messages
            return [len(messages)] * own
        return ends[len(ends) - own :]


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """The end of an earlier episode of the trial: the raw `reward`, whether it was a `win` (None
    if the environment does not report wins), and the `stop_reason`, each as in `Episode`."""

    reward: float
    win: bool | None
    stop_reason: str


@dataclass(frozen=True, slots=True)
class TrialInfo:
    """Episode number `episode` (from 0) of a trial of `episodes`, as it begins.

    The first `free_shots` episodes are played but not scored. `carry` is the configuration's: the
    part of earlier episodes that the agent sees ("none", "full", "summary"). `outcomes` has one
    entry for each earlier episode. `last_state` is the environment's own state at the end of the
    previous episode, None in the first; agents do not get it.
    """

    episode: int = 0
    episodes: int = 1
    free_shots: int = 0
    carry: str = "none"
    outcomes: tuple[EpisodeOutcome, ...] = ()
    last_state: Any = field(default=None, compare=False, repr=False)

    @property
    def scored(self) -> bool:
        """Whether the episode's reward counts."""
        return self.episode >= self.free_shots

    @property
    def carries(self) -> bool:
        """Whether the agent sees any part of the earlier episodes."""
        return self.carry != "none"

    def without_state(self) -> Self:
        """A copy without `last_state`: a state may store it, because it contains no other state."""
        return replace(self, last_state=None)

    def at(self, episode: int) -> Self:
        """The information at the start of an earlier episode, without its `last_state`."""
        return replace(self, episode=episode, outcomes=self.outcomes[:episode], last_state=None)

    def round_line(self, same: str) -> str:
        """The position in the trial ("Round 2 of 3, scored, same code."), for the prompt of an
        agent that sees its earlier episodes; else "". `same` names the part that stays equal."""
        if not self.carries or self.episodes == 1:
            return ""
        kind = "scored" if self.scored else "practice"
        stays = f", {same}" if self.episode else ""
        return f"Round {self.episode + 1} of {self.episodes}, {kind}{stays}."


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One sequence of T tokens as the model sees it.

    `token_ids` int32 and `logprobs` float32 (nats, 0.0 on tokens that were not sampled) have shape
    (T,). `spans` lists the steps whose tokens carry loss in this row. `begins` is the reason for
    the row: "episode" for a new context, "note" if the episode goes on from a note, "template" if
    the chat template rewrote the history;
    `rewrites` then says what of it: "thoughts", "answer", "opening" or "earlier". `sampled` is
    False if the row contains a text agent's words, which the environment tokenized: their
    `logprobs` are 0.0 and have no meaning. `given_rewards` (float64, shape (T,)) are rewards that
    an environment put on the tokens itself; without them they follow from the steps
    (`reward_placement`). A `Rollout` that failed sets `failed`: then no token carries loss.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", np.asarray(self.token_ids, np.int32))
        object.__setattr__(self, "logprobs", np.asarray(self.logprobs, np.float32))
        if self.given_rewards is not None:
            object.__setattr__(self, "given_rewards", np.asarray(self.given_rewards, np.float64))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return all(_equal(getattr(self, name), getattr(other, name)) for name in Row.__slots__)

    @property
    def agent_token_mask(self) -> Ints:
        """1 for each token of a span, 0 for context and in a failed rollout; shape (T,)."""
        mask = np.zeros(len(self.token_ids), np.int64)
        if not self.failed:
            for span in self.spans:
                mask[span.start : span.stop] = 1
        return mask

    @property
    def agent_tokens(self) -> int:
        """Number of agent tokens."""
        return 0 if self.failed else sum(span.length for span in self.spans)

    @property
    def prompt_length(self) -> int:
        """Number of tokens before the first agent token (T if there is none)."""
        starts = [span.start for span in self.spans if span.length and not self.failed]
        return min(starts, default=len(self.token_ids))

    @property
    def episodes(self) -> tuple[int, ...]:
        """Episode index of each span."""
        return tuple(span.episode for span in self.spans)

    @property
    def steps(self) -> tuple[int, ...]:
        """Step index, within its episode, of each span."""
        return tuple(span.step for span in self.spans)


def _equal(one: Any, other: Any) -> bool:
    """Whether two fields of a row are equal; NaN equals NaN, as an object does itself."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return bool(one == other) if not isinstance(one, np.ndarray) else False


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled trial: `group` is the number of its task, `index` its number in the group.
    `reward_placement` and `final_reward_placement` are the environment's settings
    `reward_placement` and `final_reward`."""

    session_id: str
    group: int
    index: int
    env_class_path: str
    env_config: Mapping[str, Any]
    task_data: Mapping[str, Any]
    episodes: tuple[Episode, ...]
    rows: tuple[Row, ...]
    error: str | None = None
    seed: int = 0
    policy_version: int = 0
    reward_placement: str = "spread"
    final_reward_placement: str = "last_step"

    def __post_init__(self) -> None:
        if any(row.failed != self.failed for row in self.rows):
            rows = tuple(replace(row, failed=self.failed) for row in self.rows)
            object.__setattr__(self, "rows", rows)

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

    def conversations(self) -> list[tuple[list[Message], list[tuple[Episode, Step, int]]]]:
        """Each conversation of the trial, with its steps and their episodes, and the number of
        messages up to and including the step's action."""
        parts: list[tuple[list[Message], list[tuple[Episode, Step, int]]]] = []
        for episode in self.episodes:
            for number, (own, steps) in enumerate(episode.conversations()):
                if not parts or number or not episode.continues:
                    parts.append(([], []))
                messages, turns = parts[-1]
                turns += [(episode, step, len(messages) + end) for step, end in steps]
                messages += own
        return parts
