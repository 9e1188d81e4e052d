"""One episode as a plain generator: it yields requests for actions and receives actions."""

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentsgym.rollout.answers import StepAnswer, checked_text, read_answer
from agentsgym.rollout.session import Session, SessionError
from agentsgym.types import (
    ActionKind,
    Answer,
    Episode,
    GenerationRequest,
    GenerationResult,
    ModelCall,
    Prompt,
    Step,
)
from agentsgym.types.foreign import checked_number
from agentsgym.types.messages import as_text
from agentsgym.types.text import short_repr
from agentsgym.types.tool_actions import NO_ACT, plain_act

logger = logging.getLogger(__name__)

OVER_BUDGET = "max_rollout_tokens"
"""The stop reason of an episode whose next prompt had no room in the token budget."""

EpisodeGenerator = Generator[GenerationRequest, GenerationResult, Episode]
_NoteGenerator = Generator[GenerationRequest, GenerationResult, Step | None]


def play_episode(session: Session) -> EpisodeGenerator:
    """Play the episode whose first state is in `session.env.active_states`.

    Ends when the environment is done or a limit is reached, and returns the Episode with the
    reason. If the token budget has no room for an observation and an answer to it, the episode
    ends with the previous action. The environment's exceptions are not caught; the steps so far
    stay in `session`.
    """
    env = session.env
    if session.session_id not in env.active_states:
        raise SessionError(
            f"{session.where()}: no state; set env.active_states[session_id] = "
            "env._initialize_episode(session_id, task_data) before the episode"
        )
    mistakes = 0
    stop_reason = yield from _observe(session)
    while stop_reason is None:
        answer = yield from _ask(session)
        if answer is None:
            stop_reason = OVER_BUDGET
            break
        step = _take_step(session, answer)
        mistakes = mistakes + 1 if step.malformed else 0
        stop_reason = _stop_reason(session, step, mistakes)
        if stop_reason is None:
            stop_reason = yield from _observe(
                session, idle=session.acts and plain_act(answer) is None
            )
    return finish(session, stop_reason)


def _ask(
    session: Session, kind: ActionKind = "action"
) -> Generator[GenerationRequest, GenerationResult, Answer | None]:
    """The agent's answer; in the prefix of a branch the recorded one. None if the token budget has
    no room for it, or for some answer that it may be."""
    request, answer = session.request_action(kind), None
    most = request.sampling.max_tokens
    if request.choices is None or request.choices.longest <= most:
        answer = session.read(recorded(session) or (yield request))
    if answer is None or not session.fits(answer):
        session.tree.withdraw()
        return None
    return answer


def reflect(session: Session) -> _NoteGenerator:
    """Request a reflection after the session's last episode, whose state is still the current
    one."""
    request = session.host._format_reflection(session.state, session.episodes[-1].reward)
    request = checked_text(request, "_format_reflection")
    return (yield from _write(session, after_answer(session, request)))


def _write(session: Session, request: str) -> _NoteGenerator:
    """Request a note. It is an action like any other, but not a step of the game: it has no reward
    of its own. None if the token budget has no room for it."""
    if not session.observe(request):
        return None
    answer = yield from _ask(session, "reflection")
    if answer is None:
        return None
    session.act(answer)
    session.notes += 1
    return session.step(
        answer.text, reward=0.0, done=False, truncated=answer.truncated, kind="reflection"
    )


def memory_text(session: Session) -> str:
    """The agent's last note, before the first prompt of what follows it; "" without one."""
    if not session.steps or session.steps[-1].kind != "reflection":
        return ""
    return checked_text(session.host._format_memory(session.steps[-1].action), "_format_memory")


def after_answer(session: Session, text: str) -> str:
    """The text after the answer to the finished episode's last action: without that an agent would
    never see what the action found out."""
    answer = last_answer(session)
    return f"{answer}\n{text}" if answer else text


def last_answer(session: Session) -> str:
    """The environment's answer to the finished episode's last action; "" if there is none.

    There is none if the episode had no action, if the budget had no room for the answer, or if
    `_format_answer` fails: an environment need not be able to write a prompt in a finished state.
    """
    episode = session.episodes[-1]
    if not session.acted or episode.stop_reason == OVER_BUDGET:
        return ""
    try:
        answer = session.host._format_answer(session.state, session.acted)
        return checked_text(answer, "_format_answer").strip()
    except KeyboardInterrupt:
        raise
    except BaseException:
        logger.debug("%s: no answer to the last action", session.env.name, exc_info=True)
        return ""


def _observe(
    session: Session, *, idle: bool = False
) -> Generator[GenerationRequest, GenerationResult, str | None]:
    """Get the next prompt from the environment, unless it was `idle` because it got no action;
    return a stop reason if the budget has no room. A prompt that would pass the context limit opens
    a new conversation, after a note in the old one."""
    prompt: Any = NO_ACT
    if not idle:
        prompt = session.host._format_prompt(session.state, session.acted)
    if isinstance(prompt, ModelCall):
        return _observe_call(session, prompt)
    if not isinstance(prompt, list):
        prompt = checked_text(prompt, "_format_prompt")
        if session.carried and not session.acted:
            prompt = f"{session.carried}\n\n{prompt}"
    answered = any(message.role == "assistant" for message in session.messages)
    limit = session.context_limit if answered else None
    if not session.acted:
        session.opening = as_text(session.told(prompt))
    if session.observe(prompt, limit):
        return None
    if limit is None:
        return OVER_BUDGET
    return (yield from _go_on(session, as_text(session.told(prompt))))


def _observe_call(session: Session, call: Prompt) -> str | None:
    """Take a program's call; return a stop reason if the budget has no room, or if the program
    ends. One that the agent can't be shown is refused, and what the program does then takes the
    place of what it did after its last action."""
    env, sid = session.host, session.session_id
    while True:
        try:
            return None if session.observe(call) else OVER_BUDGET
        except ValueError as error:
            refused = Answer.refused(str(error))
            answer = read_answer(env._step_episode(sid, session.state, refused))
        env.active_states[sid] = answer.state
        if session.acted:
            _answer_again(session, answer)
        if answer.done:
            return session.steps[-1].info.get("stop_reason") or "done"
        call = env._format_prompt(answer.state, session.acted)


def _answer_again(session: Session, answer: StepAnswer) -> None:
    """Replace the environment's answer to the last action."""
    last = session.steps.pop()
    if answer.step_rewards is not None:
        _replace_rewards(session, answer.step_rewards)
    reward = checked_number(answer.reward, "reward")
    info = {**last.info, **answer.info}
    session.steps.append(replace(last, reward=reward, done=answer.done, info=info))


def _go_on(
    session: Session, prompt: str
) -> Generator[GenerationRequest, GenerationResult, str | None]:
    """Ask for a note, and go on in a conversation that begins with the episode's first prompt, the
    note and `prompt`; return a stop reason if the budget has no room."""
    request = session.host._format_note_request(session.state, session.acted)
    note = yield from _write(session, checked_text(request, "_format_note_request"))
    if note is None:
        return OVER_BUDGET
    parts = [session.opening if session.acted else "", memory_text(session), prompt]
    session.tree.restart("note")
    return None if session.observe("\n\n".join(filter(None, parts))) else OVER_BUDGET


def _take_step(session: Session, said: Answer) -> Step:
    env, sid = session.host, session.session_id
    tokens = session.act(said)
    action = session.action_of(said)
    played = (step for step in reversed(session.steps) if step.kind == "action")
    anchor = next((step.info.get("anchor") for step in played), None)
    if action is not None:
        answer = read_answer(env._step_episode(sid, env.active_states[sid], action))
    else:
        answer = StepAnswer(session.state, 0.0, False, True, {"anchor": anchor})
    env.active_states[sid] = answer.state
    if answer.step_rewards is not None:
        _replace_rewards(session, answer.step_rewards)
    penalty = env.config.malformed_penalty if answer.malformed else 0.0
    return session.step(
        action if isinstance(action, str) else None,
        reward=checked_number(answer.reward - penalty, "reward"),
        done=answer.done,
        info=_with_metrics(answer.info, session.call_metrics(said)),
        malformed=answer.malformed,
        truncated=said.truncated,
        anchor=anchor,
        token_rewards=_token_rewards(session, answer.token_rewards, tokens),
        penalty=penalty,
    )


def _with_metrics(info: Mapping[str, Any], more: Mapping[str, float]) -> Mapping[str, Any]:
    return {**info, "metrics": {**info.get("metrics", {}), **more}} if more else info


def _replace_rewards(session: Session, rewards: Sequence[float]) -> None:
    """Give each of the actions before the last one its reward of `rewards`."""
    if len(rewards) != session.acted + 1:
        raise SessionError(
            f"info['step_rewards'] has {len(rewards)} entries, the episode {session.acted + 1}"
            " steps"
        )
    given = iter(rewards)
    session.steps = [
        replace(step, reward=next(given)) if step.kind == "action" else step
        for step in session.steps
    ]


def _token_rewards(
    session: Session, rewards: tuple[float, ...] | None, tokens: int
) -> tuple[float, ...] | None:
    if rewards is None or session.env.codec is None:
        return None
    if len(rewards) != tokens:
        raise SessionError(
            f"info['token_rewards'] has {len(rewards)} entries, the action has {tokens} tokens"
        )
    return rewards


def _stop_reason(session: Session, step: Step, mistakes: int) -> str | None:
    config = session.env.config
    if step.done:
        return step.info.get("stop_reason") or "done"
    if mistakes > config.error_allowance:
        return "malformed"
    if session.acted >= config.max_steps_per_episode:
        return "max_steps"
    return None


def finish(session: Session, stop_reason: str) -> Episode:
    """The episode so far. The environment's `_calculate_reward` decides its reward; the part
    beyond the sum of the steps goes to the last step."""
    steps = list(session.steps)
    if session.acted and stop_reason != "error":
        played = [step for step in steps if step.kind == "action"]
        actions, rewards = [s.action for s in played], [s.reward for s in played]
        final = session.host._calculate_reward(session.state, actions, actions[-1], rewards)
        steps = with_reward(steps, checked_number(final, "what _calculate_reward returns"))
    return Episode(
        index=session.episode,
        steps=tuple(steps),
        reward=sum(step.reward for step in steps),
        score_weight=score_weight(session),
        stop_reason=stop_reason,
        unanswered=unanswered(session) if stop_reason == "error" else None,
    )


def unanswered(session: Session) -> Step | None:
    """What the agent read, and perhaps answered, when an error ended its episode."""
    node = session.tree.unanswered()
    if node is None:
        return None
    return Step(len(session.steps), reward=0.0, done=False, **node.recorded)


def score_weight(session: Session) -> float:
    """0.0 in a free shot, else 1.0."""
    return 0.0 if session.episode < session.env.config.free_shots else 1.0


def with_reward(steps: Sequence[Step], reward: float) -> list[Step]:
    """The steps of an episode with this reward: the last action gets the rest after the others."""
    total = sum(step.reward for step in steps)
    if reward == total:
        return list(steps)
    last = max(k for k, step in enumerate(steps) if step.kind == "action")
    changed = replace(steps[last], reward=steps[last].reward + (reward - total))
    return [*steps[:last], changed, *steps[last + 1 :]]


# -- the beginning of a branch ---------------------------------------------------------------------


def recorded(session: Session) -> GenerationResult | None:
    """The answer to what the session read last, if that lies in the prefix of its request.

    Raises SessionError if it did not read what is recorded there, or where its agent plays on.
    """
    prefix, number, node = session.request.prefix, len(session.tree), session.tree.pending
    if prefix is None or number > prefix.nodes or node is None:
        return None
    rollout, step = prefix.rollout, prefix.rollout.nodes[number]
    where = f"{session.where()}: the rollout {rollout.session_id} cannot be played on from, for its"
    if node.messages != step.messages:
        now, then = as_text(node.messages), as_text(step.messages)
        raise SessionError(
            f"{where} environment says {short_repr(now)}, where it said {short_repr(then)}"
        )
    start, acts, _ = rollout.at[number].tolist()
    if len(rollout.token_ids) and session.tree.codec is not None:
        own = list(node.row[node.start : node.acts])
        if own != rollout.token_ids[start:acts].tolist():
            raise SessionError(f"{where} messages have other tokens with this model's tokenizer")
    return prefix.answer(number, session.session_id) if number < prefix.nodes else None
