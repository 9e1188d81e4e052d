"""One trial that a caller steps: an environment server, another framework, a user's own loop.

`run_trial` asks an agent; here the caller reads the conversation and says what the agent does. The
trial is the same in both cases.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.drive import advance, plays_episodes
from agentsgym.rollout.processes.env import hosted
from agentsgym.rollout.run import listed_tasks
from agentsgym.rollout.session import Session, SessionError
from agentsgym.rollout.trial import Cut, play_trial
from agentsgym.types import (
    ActionKind,
    Episode,
    GenerationRequest,
    GenerationResult,
    Rollout,
    RolloutRequest,
    Step,
)

_NUMBERS = itertools.count()


class TrialOver(RuntimeError):
    """The trial has ended and takes no more actions."""


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """Where a stepped trial stands, in plain values that a client may be told.

    They contain no `task_data`, no `info` of the environment and no error message, because those
    may name the solution.

    About the messages to answer now: `episode` (from 0, of `episodes`); `scored`, whether that
    episode counts (False in a free shot); `new_conversation`, whether they begin anew instead of
    continuing the conversation before; `asks_for` "action", "reflection" (also for a note in an
    episode), None when the trial is over.

    About the last action: its `reward`, which in an episode's last action includes what
    `_calculate_reward` adds; `malformed`; `episode_done`, whether its episode ended with it, and
    then the episode's `stop_reason` and `win`.

    `done` is whether the trial is over, `failed` whether an error ended it.
    """

    episode: int
    episodes: int
    scored: bool
    new_conversation: bool
    asks_for: ActionKind | None
    reward: float
    malformed: bool
    episode_done: bool
    stop_reason: str | None
    win: bool | None
    done: bool
    failed: bool


class SteppedTrial:
    """A trial of `env` on one task, which the caller plays action by action.

    The first prompt is ready when the object is. With a tokenizer in the environment the rollout
    has rows: actions are encoded as those of a text agent (`Row.sampled` is False). An error in
    the environment does not reach the caller: it ends the trial, and `rollout.error` has it. Only
    one thread may use an object at a time; trials of one environment may run in different threads
    only if the environment is `blocking`. As a context manager it closes itself.

    Args:
        env: the environment; it may have any number of other sessions, and workers.
        task_data: a task, or a row of the environment's datasets.
        session_id: the session's name, unique among the environment's open sessions; one is made
            up by default.
        group, index: of the rollout, for batches (`RolloutBatch([trial.rollout, ...])`).

    Raises TypeError for a task that is not a dict, ValueError for a row of another environment, for
    the name of an open session, and for an environment that defines `_run_complete_episode`.
    """

    def __init__(
        self,
        env: MultistepEnv,
        task_data: Mapping[str, Any],
        *,
        session_id: str | None = None,
        group: int = 0,
        index: int = 0,
    ) -> None:
        if plays_episodes(env):
            raise ValueError(
                f"{env.name} defines its own _run_complete_episode and cannot be stepped"
            )
        (task,) = listed_tasks(env, [task_data])
        sid = session_id or f"stepped-{next(_NUMBERS):06d}"
        if sid in env.active_states:
            raise ValueError(f"{env.name}: session {sid!r} is open already")
        request = RolloutRequest(env.class_path, env.env_config, task, group, index, 0, sid)
        self._session = Session(hosted(env), request)
        self._trial = play_trial(self._session)
        self._conversation: object = None
        self._last: Step | None = None
        self._ended: Episode | None = None
        self._reward = 0.0
        self._new_conversation = True
        self._rollout: Rollout | None = None
        self._over = False
        self._advance(None)

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation that the next action answers; a copy. When the trial is over, the last
        conversation as it ended."""
        return [message.to_dict() for message in self._session.messages]

    @property
    def new_messages(self) -> list[dict[str, Any]]:
        """The messages after the last action: all of them in a new conversation, otherwise one of
        the role user, or the results of calls. Empty when the trial is over."""
        if self._over:
            return []
        messages = self.messages
        actions = [k for k, message in enumerate(messages) if message["role"] == "assistant"]
        return messages[actions[-1] + 1 :] if actions else messages

    @property
    def facts(self) -> TrialFacts:
        session, config, ended = self._session, self._session.env.config, self._ended
        return TrialFacts(
            episode=session.episode,
            episodes=config.episodes_per_trial,
            scored=session.episode >= config.free_shots,
            new_conversation=self._new_conversation,
            asks_for=None if self._over else session.action_kind,
            reward=self._reward,
            malformed=self._last is not None and self._last.malformed,
            episode_done=ended is not None,
            stop_reason=ended.stop_reason if ended else None,
            win=ended.win if ended else None,
            done=self._over,
            failed=session.error is not None,
        )

    @property
    def info(self) -> Mapping[str, Any]:
        """The environment's `info` about the last action, as plain data. It may name the solution:
        it is for the caller, not for a client."""
        return self._last.info if self._last else {}

    @property
    def over(self) -> bool:
        return self._over

    @property
    def rollout(self) -> Rollout:
        """The finished rollout. Raises RuntimeError while the trial runs."""
        if self._rollout is None:
            raise RuntimeError(f"session {self.session_id} has no rollout yet: act, cut or close")
        return self._rollout

    def act(self, text: str) -> float:
        """Take an action, or say the reflection that was asked for, and return the step's reward.

        The rewards of an episode's steps sum to its reward. Returns 0.0 for a reflection and for an
        action during which an error ended the trial. Raises TrialOver, and TypeError if `text` is
        not a str.
        """
        if self._over:
            raise TrialOver(f"session {self.session_id} is over")
        if not isinstance(text, str):
            raise TypeError(f"an action must be a str, got {type(text).__name__}")
        answer = GenerationResult.of_text(text, self.session_id)
        self._advance(answer, len(self._session.steps))
        return self._reward

    def cut(self, reason: str) -> Rollout:
        """End the trial now, as a limit does: the running episode ends with the stop reason
        `reason` and is scored with the steps that it has; later episodes are not played.

        What `_calculate_reward` adds at this end is then `facts.reward`. A trial that is cut
        before its first scored episode has the final reward NaN. Returns the rollout; of a trial
        that is over the one it has.
        """
        if not self._over:
            steps = self._session.steps
            before = steps[-1].reward if steps else 0.0
            self._advance(Cut(reason), len(steps) - 1)
            self._reward -= before
        return self.rollout

    def close(self) -> None:
        """End the trial now and mark its rollout as failed; nothing if it is over."""
        if not self._over:
            self._advance(SessionError("the trial was closed before its end"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _advance(
        self, answer: GenerationResult | Exception | None, step: int | None = None
    ) -> None:
        """Pass an answer to the trial and keep the record of an action: `step` of its episode."""
        episode, kind = self._session.episode, self._session.action_kind
        self._over = True  # an interrupt (Ctrl-C) leaves the trial without a rollout
        outcome = advance(self._trial, answer)
        messages = self._session.messages
        self._new_conversation = messages is not self._conversation
        self._conversation = messages
        if isinstance(outcome, GenerationRequest):
            self._over = False
        else:
            self._rollout = outcome
        if step is not None:
            self._note(episode, step, kind)

    def _note(self, episode: int, step: int, kind: ActionKind) -> None:
        session = self._session
        ended = session.episodes[episode] if len(session.episodes) > episode else None
        steps = ended.steps if ended else session.steps
        self._last = steps[step] if 0 <= step < len(steps) else None
        self._ended = ended if kind == "action" else None
        self._reward = self._last.reward if self._last else 0.0
