"""One session: everything about a rollout while it runs, besides the environment's own state.

Here texts of environments and agents enter the record: lone surrogates in them become U+FFFD, so
that no tokenizer and no file meets one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentsgym.tokens import Transcript
from agentsgym.types import Action, ActionKind, ActionRequest, Message, Step, TrialInfo
from agentsgym.types.plain import clean_text, short_repr

FAULTS = (Exception, SystemExit, GeneratorExit)
"""What environments and agents may raise that ends their session alone. KeyboardInterrupt is none
of it: it ends the run. (A generator that is closed gets a GeneratorExit too: its session is over.)
"""


class SessionError(RuntimeError):
    """An environment or agent failed in one session; the message says how."""


@dataclass(slots=True)
class Session:
    """A running rollout.

    `steps` and `messages` belong to the current episode. `seed` drives the sampling noise, of
    which `sampled` tokens are used up. `trial` says where the running episode stands in its trial
    (without the environment's state). `asked_for` is the kind
    of the last request. `carried` is what earlier episodes leave for the first
    prompt. No row gets longer than `max_rollout_tokens` (None: no bound).
    """

    session_id: str
    task_data: Mapping[str, Any]
    transcript: Transcript
    seed: int = 0
    max_rollout_tokens: int | None = None
    trial: TrialInfo = field(default_factory=TrialInfo)
    episode: int = 0
    agent_state: Any = None
    asked_for: ActionKind = "action"
    sampled: int = 0
    policy_version: int = 0
    carried: str = ""
    messages: list[Message] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def begin_episode(self, episode: int, *, carried: str = "", go_on: bool = False) -> None:
        """Start an episode: with an empty conversation and a new row, or, with `go_on`, in the
        conversation and row of the one before. `carried` comes before its first prompt."""
        self.episode = episode
        self.carried = carried
        self.steps = []
        if not go_on:
            self.messages = []
            self.transcript.restart()

    def fresh_task(self) -> dict[str, Any]:
        """A copy of the task that the environment may change."""
        return copy_task(self.task_data)

    def instruct(self, text: str) -> None:
        """Begin the conversation with a system message."""
        self.messages.append({"role": "system", "content": clean_text(text)})

    def observe(self, text: str) -> bool:
        """Add what the environment says, where the budget leaves room for an answer; else nothing
        is added and the result is False."""
        self.messages.append({"role": "user", "content": clean_text(text)})
        self.transcript.observe(self.messages)
        left = self.tokens_left()
        if left is None or left > 0:
            return True
        self.withdraw()
        return False

    def withdraw(self) -> None:
        """Take back the observation that the agent was not or could not be asked about."""
        self.messages.pop()
        self.transcript.withdraw()

    def fits(self, action: Action) -> bool:
        """Whether the budget has room for an action. An engine's always fits, for it is cut."""
        left = self.tokens_left()
        return left is None or len(self.transcript.ids_of(action)) <= left

    def tokens_left(self) -> int | None:
        """How many tokens the row may still grow by; None without a bound."""
        if self.max_rollout_tokens is None:
            return None
        return self.max_rollout_tokens - len(self.transcript.context)

    def request(self, kind: ActionKind = "action", token_cap: int | None = None) -> ActionRequest:
        """Ask the agent for the next action."""
        self.asked_for = kind
        return ActionRequest(
            kind=kind,
            token_cap=token_cap,
            session_id=self.session_id,
            messages=self.messages,
            context=self.transcript.context,
            max_tokens=self.tokens_left(),
            seed=self.seed,
            sampled_before=self.sampled,
        )

    def act(self, action: Action) -> int:
        """Record what the agent said; returns its number of agent tokens."""
        span = self.transcript.act(action, self.episode, len(self.steps))
        self.messages.append({"role": "assistant", "content": action.text})
        self.sampled += len(action.token_ids or ())
        self.policy_version = action.policy_version
        return span.length if span else 0

    def where(self, env_name: str) -> str:
        """The place in the run, for error messages."""
        return (
            f"{env_name}, session {self.session_id}, episode {self.episode}, "
            f"step {len(self.steps)}, task {short_repr(self.task_data)}"
        )


def clean_action(action: Action) -> Action:
    """The action without lone surrogates in its text; sampled ids stay as they are."""
    text = clean_text(action.text)
    return action if text is action.text else replace(action, text=text)


def copy_task(task: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of plain data by value: what one session changes in its task, no other sees. Objects
    that are no plain data are shared."""
    return {key: _copy(value) for key, value in task.items()}


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _copy(item) for key, item in value.items()}
    if kind in (list, tuple):
        return kind(map(_copy, value))
    return set(value) if kind is set else value
