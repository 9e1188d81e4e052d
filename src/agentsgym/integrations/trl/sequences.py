"""A rollout as the one sequence that TRL trains on."""

from dataclasses import dataclass

from agentsgym.types import Rollout

_WHY = {
    "template": "the chat template rewrote the history (agentsgym tokens MODEL says where)",
    "episode": "an episode began a new conversation (env_config.carry)",
}


class SeveralRows(ValueError):
    """A rollout has several rows, and TRL trains one sequence per rollout."""


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """Token ids from the beginning to the last agent token, cut before the first agent token.

    `env_mask` (1 for agent tokens) and `logprobs` (0.0 elsewhere) are as long as `completion_ids`.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    env_mask: list[int]
    logprobs: list[float]


def token_sequence(rollout: Rollout, filler: int) -> TokenSequence:
    """The sequence of a rollout. One that failed, or has no agent token, becomes a single masked
    `filler` token, because TRL takes no empty completion.

    Raises SeveralRows.
    """
    if not rollout.failed and len(rollout.rows) > 1:
        raise SeveralRows(_problem(rollout))
    row = rollout.rows[0] if rollout.rows else None
    if row is None or rollout.failed or not row.agent_tokens:
        prompt = [filler] if row is None else row.token_ids[: row.prompt_length].tolist()
        return TokenSequence(prompt or [filler], [filler], [0], [0.0])
    begin, end = row.prompt_length, max(span.stop for span in row.spans)
    return TokenSequence(
        row.token_ids[:begin].tolist(),
        row.token_ids[begin:end].tolist(),
        row.agent_token_mask[begin:end].tolist(),
        row.logprobs[begin:end].tolist(),
    )


def _problem(rollout: Rollout) -> str:
    second = rollout.rows[1]
    where = f" at step {second.steps[0]} of episode {second.episodes[0]}" if second.spans else ""
    return (
        f"{rollout.env_class_path}: session {rollout.session_id} gave {len(rollout.rows)} rows of "
        f"tokens, and TRL's GRPOTrainer trains one per rollout; the second begins{where} because "
        f"{_WHY.get(second.begins, second.begins)}. agentsgym.GRPOEnvTrainer trains on all of them"
    )
