"""One session: everything about a rollout while it runs, besides the environment's own state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsgym.tokens import Transcript
from agentsgym.types import Action, ActionKind, ActionRequest, Message, Step


class SessionError(RuntimeError):
    """An environment or agent failed in one session; the message says where."""


@dataclass(slots=True)
class Session:
    """A running rollout.

    `steps` and `messages` belong to the current episode. `seed` drives the sampling noise, of
    which `sampled` tokens are used up. `carried` is what earlier episodes leave for the first
    prompt. `max_rollout_tokens` bounds the context (None: no bound).
    """

    session_id: str
    task_data: Mapping[str, Any]
    transcript: Transcript
    seed: int = 0
    max_rollout_tokens: int | None = None
    episode: int = 0
    agent_state: Any = None
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

    def observe(self, *messages: Message) -> None:
        """Add what the environment says."""
        self.messages.extend(messages)
        self.transcript.observe(self.messages)

    def tokens_left(self) -> int | None:
        """How many tokens the rollout may still grow by; None without a bound."""
        if self.max_rollout_tokens is None:
            return None
        return self.max_rollout_tokens - len(self.transcript.context)

    def request(self, kind: ActionKind = "action", token_cap: int | None = None) -> ActionRequest:
        """Ask the agent for the next action."""
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
            f"step {len(self.steps)}, task {dict(self.task_data)!r}"
        )
