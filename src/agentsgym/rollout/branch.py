"""The beginning of a branch: the answers of a recorded rollout, to what was read then."""

from agentsgym.rollout.session import Session, SessionError
from agentsgym.types import GenerationResult
from agentsgym.types.messages import as_text
from agentsgym.types.text import short_repr


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
