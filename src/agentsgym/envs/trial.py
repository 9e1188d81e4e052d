"""A trial: the episodes of one rollout, and the rollout that comes of them."""

import hashlib
import traceback
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentsgym.envs.episode import finish, play_episode, reflect
from agentsgym.envs.placement import place
from agentsgym.envs.session import Session
from agentsgym.tokens import DraftRow, Transcript
from agentsgym.types import Action, ActionRequest, Episode, Rollout, Row, Step, StepSpan

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
        except GeneratorExit:
            self._env.active_states.pop(self.session.session_id, None)
            raise
        except Exception:
            self.fail(traceback.format_exc())
        return self.close()

    def begin_episode(self, episode: int) -> None:
        """Initialise the environment's state for the next episode; what it sees of the earlier
        ones is the config's `carry`."""
        env, session = self._env, self.session
        carry = env.config["carry"] if episode else "none"
        carried = ""
        if carry == "full":
            state = env.active_states[session.session_id]
            carried = env._format_result(state, self._episodes[-1].reward)
        elif carry == "summary":
            carried = env._format_memory(session.steps[-1].action)
        session.begin_episode(episode, carried=carried, go_on=carry == "full")
        env.active_states[session.session_id] = env._initialize_episode(
            session.session_id, dict(session.task_data)
        )

    def reflects_after(self, episode: int) -> bool:
        """Whether a reflection follows this episode."""
        config = self._env.config
        return bool(config["carry"] == "summary" and episode + 1 < config["episodes_per_trial"])

    def keep_reflection(self, step: Step) -> None:
        """Add the reflection to the episode that it looks back on."""
        last = self._episodes[-1]
        self._episodes[-1] = replace(
            last, steps=(*last.steps, step), messages=tuple(self.session.messages)
        )

    def keep(self, episode: Episode) -> None:
        """Add a finished episode."""
        self._episodes.append(episode)

    def keep_record(self, record: Mapping[str, Any]) -> None:
        """Add what `_run_complete_episode` returned. An override may return the specification's
        five keys alone; steps are then the runs of agent tokens."""
        if "episode" in record:
            self.keep(record["episode"])
            return
        spec = self._spec
        episode, row = foreign_episode(record, self.session.episode)
        weight = 0.0 if episode.index < self._env.config["free_shots"] else 1.0
        self.keep(replace(episode, score_weight=weight))
        self._foreign_rows.append(
            replace(row, session_id=spec.session_id, group=spec.group, rollout=spec.index)
        )

    def fail(self, error: str) -> None:
        """Mark the rollout as failed, keeping what was played of the running episode."""
        session = self.session
        self._error = f"{session.where(self._env.name)}\n{error}"
        if len(self._episodes) == session.episode and session.messages:
            self._episodes.append(finish(self._env, session, "error"))

    def close(self) -> Rollout:
        """The rollout; the environment forgets the session."""
        spec, env = self._spec, self._env
        env.active_states.pop(spec.session_id, None)
        return Rollout(
            session_id=spec.session_id,
            group=spec.group,
            index=spec.index,
            env_class_path=env.class_path,
            env_config=env.env_config,
            task_data=spec.task_data,
            episodes=tuple(self._episodes),
            rows=(*self._foreign_rows, *map(self._row, self.session.transcript.rows)),
            error=self._error,
            seed=spec.seed,
            policy_version=self.session.policy_version,
        )

    def _row(self, draft: DraftRow) -> Row:
        failed = self._error is not None
        length = len(draft.token_ids)
        return Row(
            session_id=self._spec.session_id,
            group=self._spec.group,
            rollout=self._spec.index,
            token_ids=tuple(draft.token_ids),
            agent_token_mask=(0,) * length if failed else tuple(draft.mask),
            logprobs=tuple(draft.logprobs),
            per_token_rewards=(0.0,) * length if failed else tuple(self._placed(draft)),
            spans=tuple(draft.spans),
            begins=draft.begins,
            sampled=draft.sampled,
        )

    def _placed(self, draft: DraftRow) -> list[float]:
        rewards = [0.0] * len(draft.token_ids)
        for episode in self._episodes:
            spans = [
                span
                for span in draft.spans
                if span.episode == episode.index and episode.steps[span.step].kind == "action"
            ]
            if not spans or not episode.score_weight:
                continue
            placed = place(
                len(draft.token_ids),
                spans,
                [episode.steps[span.step] for span in spans],
                placement=self._env.config["reward_placement"],
                final_reward=self._env.config["final_reward"],
                episode_reward=episode.reward,
            )
            rewards = [a + b * episode.score_weight for a, b in zip(rewards, placed, strict=True)]
        return rewards


def foreign_episode(record: Mapping[str, Any], index: int) -> tuple[Episode, Row]:
    """An episode and its row from the specification's unpadded dict alone."""
    mask = record["agent_token_mask"]
    spans = [StepSpan(index, k, *run) for k, run in enumerate(_runs(mask))]
    rewards = [0.0] * (len(spans) - 1) + [float(record["final_reward"])] if spans else []
    steps = tuple(
        Step(k, "", "", reward, done=k == len(spans) - 1) for k, reward in enumerate(rewards)
    )
    messages = tuple(record.get("final_completion_messages", ()))
    episode = Episode(index, steps, messages, float(record["final_reward"]), 1.0, "done")
    row = Row(
        "",
        0,
        0,
        tuple(record["full_token_ids"]),
        tuple(mask),
        (0.0,) * len(mask),
        tuple(record["per_token_rewards"]),
        tuple(spans),
        sampled=False,
    )
    return episode, row


def _runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    """Start and stop of each run of ones."""
    padded = [0, *mask, 0]
    edges = [i for i in range(len(mask) + 1) if padded[i] != padded[i + 1]]
    return list(zip(edges[::2], edges[1::2], strict=True))
