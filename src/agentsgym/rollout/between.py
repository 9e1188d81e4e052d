"""The environment's texts between two episodes of a trial.

They begin with the environment's answer to the episode's last action: without it an agent would
never see what that action found out.
"""

import logging

from agentsgym.rollout.answers import text
from agentsgym.rollout.session import FAULTS, Session

logger = logging.getLogger(__name__)

OVER_BUDGET = "max_rollout_tokens"
"""The stop reason of an episode whose next prompt had no room in the token budget."""


def result_text(session: Session) -> str:
    """The text about the finished episode, before the first prompt of the next (`carry="full"`)."""
    reward = session.episodes[-1].reward
    result = session.env._format_result(session.state, reward)
    return _after_answer(session, text(result, "_format_result"))


def reflection_request(session: Session) -> str:
    """The request to reflect on the finished episode (`carry="summary"`)."""
    reward = session.episodes[-1].reward
    request = session.env._format_reflection(session.state, reward)
    return _after_answer(session, text(request, "_format_reflection"))


def memory_text(session: Session) -> str:
    """The agent's reflection, before the first prompt of the next episode; "" without one."""
    if not session.steps or session.steps[-1].kind != "reflection":
        return ""
    return text(session.env._format_memory(session.steps[-1].action), "_format_memory")


def _after_answer(session: Session, said: str) -> str:
    answer = last_answer(session)
    return f"{answer}\n{said}" if answer else said


def last_answer(session: Session) -> str:
    """The environment's answer to the finished episode's last action; "" if there is none.

    There is none if the episode was won, because a prompt for another action would then be wrong,
    if it had no action, if the budget had no room for the answer, or if `_format_answer` fails: an
    environment need not be able to write a prompt in a finished state.
    """
    episode = session.episodes[-1]
    if not session.steps or episode.win or episode.stop_reason == OVER_BUDGET:
        return ""
    try:
        answer = session.env._format_answer(session.state, len(session.steps))
        return text(answer, "_format_answer").strip()
    except FAULTS as error:
        logger.debug("%s: no answer to the last action: %r", session.env.name, error)
        return ""
