"""The examples that each export format makes of a group's rollouts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.evaluation.metrics import record
from agentsgym.report.export.selection import Filters
from agentsgym.report.stored import is_malformed
from agentsgym.runs.files import StoredRollout
from agentsgym.types import Episode, Message, Rollout, Row, Step
from agentsgym.types.text import clean_text, finite, plain

Json = dict[str, Any]
Lines = Sequence[StoredRollout]

# -- conversations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spoken:
    """One action or reflection of a conversation: `place` is the number of its message."""

    place: int
    episode: Episode
    step: Step


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages up to the agent's last one. It may go on over several episodes."""

    messages: tuple[Message, ...]
    spoken: tuple[Spoken, ...]


def conversations(rollout: Rollout) -> Iterator[Conversation]:
    """The conversations of a rollout. What no game can contain, in a foreign file, is left out, and
    conversations with calls of tools, which are more than texts."""
    for messages, episodes in rollout.conversations():
        if any("tool_calls" in message for message in messages):
            continue
        turns = [(episode, step) for episode in episodes for step in episode.steps]
        places = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
        if turns and len(turns) == len(places):
            spoken = (Spoken(n, *one) for n, one in zip(places, turns, strict=True))
            yield Conversation(tuple(map(_clean, messages[: places[-1] + 1])), tuple(spoken))


def _clean(message: Message) -> Message:
    """A message of texts; a foreign file may hold anything."""
    return {
        "role": clean_text(str(message["role"])),
        "content": clean_text(str(message["content"])),
    }


def is_target(episode: Episode, step: Step, filters: Filters) -> bool:
    """Whether an action is an example of what to say, and not only context."""
    free = episode.score_weight == 0
    return not (filters.scored and free) and not (filters.no_malformed and is_malformed(step))


# -- the formats -----------------------------------------------------------------------------------


def messages(lines: Lines, filters: Filters) -> Iterator[Json]:
    """One example per conversation. Training covers all actions of it, so one with an action that
    is no target is left out."""
    for line in lines:
        for one in conversations(line.rollout):
            if all(is_target(act.episode, act.step, filters) for act in one.spoken):
                yield {
                    "messages": list(one.messages),
                    "rewards": [finite(act.step.reward) for act in one.spoken],
                    "malformed": [is_malformed(act.step) for act in one.spoken],
                    **about(line),
                }


def prompt_completion(lines: Lines, filters: Filters) -> Iterator[Json]:
    """One example per action: the conversation before it, and the action."""
    for line in lines:
        for one in conversations(line.rollout):
            for act in one.spoken:
                if is_target(act.episode, act.step, filters):
                    yield {
                        "prompt": list(one.messages[: act.place]),
                        "completion": [one.messages[act.place]],
                        "episode": act.episode.index,
                        "step": act.step.index,
                        "step_reward": finite(act.step.reward),
                        **about(line),
                    }


def tokens(lines: Lines, filters: Filters) -> Iterator[Json]:
    """One example per row of tokens: the ids that the model saw and sampled, and 1 for those of
    its targets. Rows without a target are left out, and those with ids that no tokenizer has."""
    for line in lines:
        for row in line.rollout.rows:
            mask = _targets(row, line.rollout, filters)
            if any(mask) and row.token_ids.min() >= 0:
                yield {
                    "input_ids": row.token_ids.tolist(),
                    "assistant_masks": mask,
                    "sampled": row.sampled,
                    **about(line),
                }


def _targets(row: Row, rollout: Rollout, filters: Filters) -> list[int]:
    mask: list[int] = row.agent_token_mask.tolist()
    targets = {
        (episode.index, number)
        for episode in rollout.episodes
        for number, step in enumerate(episode.steps)
        if is_target(episode, step, filters)
    }
    for span in row.spans:
        if span.key not in targets:
            mask[span.start : span.stop] = [0] * span.length
    return mask


def preference(lines: Lines, filters: Filters, *, whole: bool = False) -> Iterator[Json]:
    """One example per pair: the conversation before the first action in which two rollouts of a
    task differ, and the actions of the one with more and the one with less reward; of the `whole`
    pair also the rest of both conversations.

    The rollout with most reward stands beside that with least, the second beside the last but one,
    and so on; each rollout is in one pair at most.
    """
    order = sorted(lines, key=lambda line: -line.rollout.final_reward)
    made: list[Any] = []
    for better, worse in zip(order, reversed(order), strict=True):
        if better.rollout.final_reward <= worse.rollout.final_reward:
            return
        pair = _difference(better.rollout, worse.rollout, filters, whole=whole)
        if pair is not None and pair not in made:
            made.append(pair)
            yield {
                **pair,
                "rejected_reward": worse.rollout.final_reward,
                "rejected_rollout": worse.rollout.index,
                **about(better),
            }


def _difference(better: Rollout, worse: Rollout, filters: Filters, *, whole: bool) -> Json | None:
    """The first action that differs; None if the environment's words differ before it."""
    for one, other in zip(conversations(better), conversations(worse), strict=False):
        pairs = zip(one.messages, other.messages, strict=False)
        place = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
        if place is not None:
            return _at(one, other, place, filters, whole=whole)
        if len(one.messages) != len(other.messages):
            return None
    return None


def _at(
    one: Conversation, other: Conversation, place: int, filters: Filters, *, whole: bool
) -> Json | None:
    mine = next((act for act in one.spoken if act.place == place), None)
    theirs = any(act.place == place for act in other.spoken)
    if mine is None or not theirs or not is_target(mine.episode, mine.step, filters):
        return None
    stop = None if whole else place + 1
    return {
        "prompt": list(one.messages[:place]),
        "chosen": list(one.messages[place:stop]),
        "rejected": list(other.messages[place:stop]),
    }


def about(line: StoredRollout) -> Json:
    """Where an example comes from. `task` and `env_config` are JSON."""
    rollout = line.rollout
    win = record(rollout).win
    return {
        "env": clean_text(rollout.env_class_path),
        "env_config": _json(rollout.env_config),
        "task": _json(rollout.task_data),
        "reward": rollout.final_reward,
        "win": None if win is None else float(win),
        "phase": clean_text(line.phase),
        "training_step": line.step,
        "group": rollout.group,
        "rollout": rollout.index,
        "session_id": clean_text(rollout.session_id),
    }


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(plain(value), ensure_ascii=False, sort_keys=True)
