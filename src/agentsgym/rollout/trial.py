"""The trial loop, played in any way, and the rollout of a session that has ended."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from agentsgym.rollout.between import memory_text, result_text
from agentsgym.rollout.episode import EpisodeGenerator, finish, play_episode, reflect
from agentsgym.rollout.failures import describe
from agentsgym.rollout.lifetime import begin_state, end_state
from agentsgym.rollout.session import FAULTS, Session, copy_task
from agentsgym.tokens import DraftRow, tell_rewritten
from agentsgym.types import (
    Episode,
    EpisodeOutcome,
    GenerationRequest,
    GenerationResult,
    Rollout,
    Row,
    Step,
    StepSpan,
    TrialInfo,
)
from agentsgym.types.reward_placement import FINAL_REWARDS, place_rewards

Trial = Generator[GenerationRequest, GenerationResult, Rollout]
"""A running trial: it requests actions, and returns its rollout."""


class Cut(Exception):
    """Raised in a trial that waits for an action: it ends there, with this stop reason."""

    def __init__(self, stop_reason: str) -> None:
        super().__init__(stop_reason)
        self.stop_reason = stop_reason


_CARRIED = {"full": result_text, "summary": memory_text}
"""The text of the earlier episodes before an episode's first prompt, for each way to carry."""

EpisodePlayer = Callable[[Session], EpisodeGenerator]
"""Plays an episode whose first state is in `session.env.active_states`."""


def play_trial(session: Session, play: EpisodePlayer = play_episode) -> Trial:
    """Play every episode of a trial with `play`, and the reflections after them.

    An exception ends the trial and marks the rollout as failed, except `Cut`. The environment
    always drops the session at the end.
    """
    try:
        yield from _play_episodes(session, play)
    except FAULTS as error:
        _fail(session, error)
    finally:
        end_state(session.env, session.session_id)
    return rollout_of(session)


def _play_episodes(
    session: Session, play: EpisodePlayer
) -> Generator[GenerationRequest, GenerationResult, None]:
    episodes = session.env.config["episodes_per_trial"]
    try:
        for number in range(episodes):
            _begin(session, number)
            session.episodes.append((yield from play(session)))
            if session.env.config["carry"] == "summary" and number + 1 < episodes:
                _keep_reflection(session, (yield from reflect(session)))
    except Cut as cut:
        _end_here(session, cut.stop_reason)


def _end_here(session: Session, stop_reason: str) -> None:
    """End the trial instead of the requested action."""
    session.withdraw()
    if len(session.episodes) == session.episode:  # no reflection was requested
        session.episodes.append(finish(session, stop_reason))


def _begin(session: Session, number: int) -> None:
    """Initialize the environment's state for an episode; the config's `carry` decides how much of
    the earlier episodes the agent sees."""
    env = session.env
    carry = env.config["carry"] if number else "none"
    carried = _CARRIED[carry](session) if carry in _CARRIED else ""
    session.begin_episode(number, carried=carried, go_on=carry == "full")
    trial = _trial_info(session)
    session.trial = trial.without_state()
    begin_state(env, session.session_id, copy_task(session.task_data), trial)


def _trial_info(session: Session) -> TrialInfo:
    """The trial information for the next episode."""
    outcomes = [EpisodeOutcome(e.reward, e.win, e.stop_reason) for e in session.episodes]
    last = session.env.active_states.get(session.session_id) if outcomes else None
    return session.env.trial_info(outcomes, last)


def _keep_reflection(session: Session, step: Step | None) -> None:
    """Add the reflection, if there is one, to its episode."""
    if step is not None:
        last = session.episodes[-1]
        session.episodes[-1] = replace(
            last, steps=(*last.steps, step), messages=tuple(session.messages)
        )


def _fail(session: Session, error: BaseException) -> None:
    """Mark the rollout as failed, and keep the steps of the running episode."""
    session.error = f"{session.where()}\n{describe(error)}"
    if len(session.episodes) == session.episode and session.messages:
        session.episodes.append(finish(session, "error"))


def rollout_of(session: Session) -> Rollout:
    """The rollout of a session that has ended; with an `error` it carries no loss."""
    request, env = session.request, session.env
    drafts = session.transcript.rows
    if any(draft.begins == "template" for draft in drafts):
        tell_rewritten(env.codec)
    own = [_row(session, number, draft) for number, draft in enumerate(drafts)]
    return Rollout(
        session_id=request.session_id,
        group=request.group,
        index=request.index,
        env_class_path=env.class_path,
        env_config=env.env_config,
        task_data=request.task_data,
        episodes=tuple(session.episodes),
        rows=(*session.given_rows, *own),
        error=session.error,
        seed=request.seed,
        policy_version=session.policy_version,
        repeats_reward=FINAL_REWARDS[env.config["final_reward"]].on_every_step,
    )


def _row(session: Session, number: int, draft: DraftRow) -> Row:
    failed = session.error is not None
    length = len(draft.token_ids)
    return Row(
        session_id=session.request.session_id,
        group=session.request.group,
        rollout=session.request.index,
        token_ids=tuple(draft.token_ids),
        agent_token_mask=(0,) * length if failed else tuple(draft.mask),
        logprobs=tuple(draft.logprobs),
        per_token_rewards=(0.0,) * length if failed else tuple(_rewards(session, number, draft)),
        spans=tuple(span for span in draft.spans if _has_step(session.episodes, span)),
        begins=draft.begins,
        sampled=draft.sampled,
        rewrites=draft.rewrites,
    )


def _has_step(episodes: Sequence[Episode], span: StepSpan) -> bool:
    """Whether the environment answered the action; its tokens are in the row in any case."""
    return span.episode < len(episodes) and span.step < len(episodes[span.episode].steps)


def _rewards(session: Session, number: int, draft: DraftRow) -> list[float]:
    """Per-token rewards of row `number`; in free shots only the penalties count."""
    rewards = [0.0] * len(draft.token_ids)
    for episode in session.episodes:
        for position, reward in enumerate(_counted(session, number, draft, episode)):
            rewards[position] += reward
    return rewards


def _counted(session: Session, number: int, draft: DraftRow, episode: Episode) -> list[float]:
    """What counts of an episode's per-token rewards; [] for nothing."""
    if not episode.score_weight:
        lost = any(step.penalty for step in episode.steps)
        return _placed(session, draft, _penalties(episode)) if lost else []
    given = session.given_rewards.get((episode.index, number))
    return _placed(session, draft, episode) if given is None else given


def _penalties(episode: Episode) -> Episode:
    """The episode as if its malformed actions had lost their penalties, and nothing been earned."""
    steps = tuple(
        replace(step, reward=0.0 - step.penalty, token_rewards=None) for step in episode.steps
    )
    return replace(episode, steps=steps, reward=sum(step.reward for step in steps))


def _placed(session: Session, draft: DraftRow, episode: Episode) -> list[float]:
    spans = [
        span
        for span in draft.spans
        if span.episode == episode.index and episode.steps[span.step].kind == "action"
    ]
    return placed_by_config(session, draft, episode, spans) if spans else []


def placed_by_config(
    session: Session, draft: DraftRow, episode: Episode, spans: Sequence[StepSpan]
) -> list[float]:
    """The rewards of the steps of `spans`, one per token of the row, placed according to the
    environment's configuration."""
    return place_rewards(
        len(draft.token_ids),
        spans,
        [episode.steps[span.step] for span in spans],
        placement=session.env.config["reward_placement"],
        final_reward=session.env.config["final_reward"],
        episode_reward=episode.reward,
    )
