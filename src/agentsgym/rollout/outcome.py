"""The rollout of a finished session: its rows, with rewards placed on their agent tokens."""

from collections.abc import Sequence

from agentsgym.rollout.session import Session
from agentsgym.tokens import DraftRow, tell_rewritten
from agentsgym.types import Episode, Rollout, Row, StepSpan
from agentsgym.types.reward_placement import FINAL_REWARDS, place_rewards


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
    )


def _has_step(episodes: Sequence[Episode], span: StepSpan) -> bool:
    """Whether the environment answered the action; its tokens are in the row in any case."""
    return span.episode < len(episodes) and span.step < len(episodes[span.episode].steps)


def _rewards(session: Session, number: int, draft: DraftRow) -> list[float]:
    """Per-token rewards of row `number`, without those of free shots."""
    rewards = [0.0] * len(draft.token_ids)
    for episode in session.episodes:
        if not episode.score_weight:
            continue
        placed = session.given_rewards.get((episode.index, number))
        if placed is None:
            placed = _placed(session, draft, episode)
        for position, reward in enumerate(placed):
            rewards[position] += reward * episode.score_weight
    return rewards


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
