"""A trial: the episodes of one rollout, and the rollout that comes of them."""

import hashlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentsgym.rollout.answers import text
from agentsgym.rollout.episode import finish, play_episode, reflect
from agentsgym.rollout.episode_record import check_record, foreign_episode, with_final_reward
from agentsgym.rollout.faults import describe
from agentsgym.rollout.reward_placement import place
from agentsgym.rollout.session import FAULTS, Session, SessionError
from agentsgym.tokens import DraftRow, Transcript, tell_rewritten
from agentsgym.types import (
    Action,
    ActionRequest,
    Episode,
    EpisodeOutcome,
    Rollout,
    Row,
    Step,
    StepSpan,
    TrialInfo,
)

if TYPE_CHECKING:
    from agentsgym.envs.base import MultistepEnv


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """What is to be played: a task, its place in the batch, and the seed of the sampling noise."""

    session_id: str
    group: int
    index: int
    task_data: Mapping[str, Any]
    seed: int = 0
    max_rollout_tokens: int | None = None


def session_seed(*parts: object) -> int:
    """A 63-bit seed that depends on every part and on nothing else (blake2b of their reprs)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class Trial:
    """Plays the episodes of one rollout, however its agent is driven, and keeps what came of it."""

    def __init__(self, env: "MultistepEnv", spec: TrialSpec) -> None:
        self._env = env
        self._spec = spec
        self._error: str | None = None
        self._episodes: list[Episode] = []
        self._foreign_rows: list[Row] = []
        # Per-token rewards as `_run_complete_episode` returned them, by (episode, row).
        self._given: dict[tuple[int, int], list[float]] = {}
        self.session = Session(
            spec.session_id,
            spec.task_data,
            Transcript(env.codec),
            seed=spec.seed,
            max_rollout_tokens=spec.max_rollout_tokens,
        )

    def play(self) -> Generator[ActionRequest, Action, Rollout]:
        """All episodes as one generator. An exception ends the trial and marks the rollout."""
        try:
            for episode in range(self._env.config["episodes_per_trial"]):
                self.begin_episode(episode)
                self.keep((yield from play_episode(self._env, self.session)))
                if self.reflects_after(episode):
                    self.keep_reflection((yield from reflect(self._env, self.session)))
        except FAULTS as error:
            self.fail(error)
        return self.close()

    def begin_episode(self, episode: int) -> None:
        """Initialise the environment's state for the next episode; what it sees of the earlier
        ones is the config's `carry`."""
        env, session = self._env, self.session
        carry = env.config["carry"] if episode else "none"
        carried = ""
        if carry == "full":
            state = env.active_states[session.session_id]
            carried = text(env._format_result(state, self._episodes[-1].reward), "_format_result")
        elif carry == "summary" and session.steps and session.steps[-1].kind == "reflection":
            carried = text(env._format_memory(session.steps[-1].action), "_format_memory")
        session.begin_episode(episode, carried=carried, go_on=carry == "full")
        trial = self._info()
        session.trial = trial.without_state()
        env.active_states[session.session_id] = env._begin_episode(
            session.session_id, session.fresh_task(), trial
        )

    def _info(self) -> TrialInfo:
        """What the next episode is told about the trial."""
        outcomes = [EpisodeOutcome(e.reward, e.win, e.stop_reason) for e in self._episodes]
        last = self._env.active_states.get(self.session.session_id) if outcomes else None
        return self._env.trial_info(outcomes, last)

    def reflects_after(self, episode: int) -> bool:
        """Whether a reflection follows this episode."""
        config = self._env.config
        return bool(config["carry"] == "summary" and episode + 1 < config["episodes_per_trial"])

    def keep_reflection(self, step: Step | None) -> None:
        """Add the reflection, if there is one, to the episode that it looks back on."""
        if step is None:
            return
        last = self._episodes[-1]
        self._episodes[-1] = replace(
            last, steps=(*last.steps, step), messages=tuple(self.session.messages)
        )

    def keep(self, episode: Episode) -> None:
        """Add a finished episode."""
        self._episodes.append(episode)

    def keep_record(self, record: Mapping[str, Any]) -> None:
        """Add what `_run_complete_episode` returned: its rewards are those that count. An override
        may return the specification's five keys alone; steps are then the runs of agent tokens."""
        check_record(record)
        if "episode" in record:
            self._keep_own(record, record["episode"])
            return
        spec = self._spec
        episode, row = foreign_episode(record, self.session.episode)
        weight = 0.0 if episode.index < self._env.config["free_shots"] else 1.0
        self.keep(replace(episode, score_weight=weight))
        self._foreign_rows.append(
            replace(row, session_id=spec.session_id, group=spec.group, rollout=spec.index)
        )

    def _keep_own(self, record: Mapping[str, Any], episode: Episode) -> None:
        """Add an episode that was played here, with the rewards that the record gives it."""
        rows = self.session.transcript.rows
        ids, mask = list(record["full_token_ids"]), list(record["agent_token_mask"])
        if ids and (ids, mask) != (rows[-1].token_ids, rows[-1].mask):
            raise SessionError(
                "_run_complete_episode returned an episode with other tokens than were played; "
                "leave 'episode' out to return tokens of its own"
            )
        self.keep(with_final_reward(episode, float(record["final_reward"])))
        self._given[episode.index, len(rows) - 1] = list(map(float, record["per_token_rewards"]))

    def fail(self, error: BaseException) -> None:
        """Mark the rollout as failed, keeping what was played of the running episode."""
        session = self.session
        self._error = f"{session.where(self._env.name)}\n{describe(error)}"
        if len(self._episodes) == session.episode and session.messages:
            self._episodes.append(finish(self._env, session, "error"))

    def close(self) -> Rollout:
        """The rollout; the environment forgets the session."""
        spec, env = self._spec, self._env
        env.active_states.pop(spec.session_id, None)
        if any(row.begins == "template" for row in self.session.transcript.rows):
            tell_rewritten(env.codec)
        return Rollout(
            session_id=spec.session_id,
            group=spec.group,
            index=spec.index,
            env_class_path=env.class_path,
            env_config=env.env_config,
            task_data=spec.task_data,
            episodes=tuple(self._episodes),
            rows=(*self._foreign_rows, *self._rows()),
            error=self._error,
            seed=spec.seed,
            policy_version=self.session.policy_version,
            repeats_reward=env.config["final_reward"] == "repeat",
        )

    def _rows(self) -> list[Row]:
        drafts = self.session.transcript.rows
        return [self._row(number, draft) for number, draft in enumerate(drafts)]

    def _row(self, number: int, draft: DraftRow) -> Row:
        failed = self._error is not None
        length = len(draft.token_ids)
        return Row(
            session_id=self._spec.session_id,
            group=self._spec.group,
            rollout=self._spec.index,
            token_ids=tuple(draft.token_ids),
            agent_token_mask=(0,) * length if failed else tuple(draft.mask),
            logprobs=tuple(draft.logprobs),
            per_token_rewards=(0.0,) * length if failed else tuple(self._placed(number, draft)),
            spans=tuple(span for span in draft.spans if self._has_step(span)),
            begins=draft.begins,
            sampled=draft.sampled,
        )

    def _has_step(self, span: StepSpan) -> bool:
        """Whether the environment answered the action; its tokens stand there in any case."""
        return span.episode < len(self._episodes) and span.step < len(
            self._episodes[span.episode].steps
        )

    def _placed(self, number: int, draft: DraftRow) -> list[float]:
        rewards = [0.0] * len(draft.token_ids)
        for episode in self._episodes:
            if not episode.score_weight:
                continue
            placed = self._given.get((episode.index, number))
            if placed is None:
                placed = self._placed_by_config(draft, episode)
            for position, reward in enumerate(placed):
                rewards[position] += reward * episode.score_weight
        return rewards

    def _placed_by_config(self, draft: DraftRow, episode: Episode) -> list[float]:
        spans = [
            span
            for span in draft.spans
            if span.episode == episode.index and episode.steps[span.step].kind == "action"
        ]
        if not spans:
            return []
        return place(
            len(draft.token_ids),
            spans,
            [episode.steps[span.step] for span in spans],
            placement=self._env.config["reward_placement"],
            final_reward=self._env.config["final_reward"],
            episode_reward=episode.reward,
        )
