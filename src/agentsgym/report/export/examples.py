"""The examples that each export format makes of a group's rollouts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.credit.table import differ
from agentsgym.evaluation.metrics import record
from agentsgym.runs.files import StoredRollout
from agentsgym.types import Message, Rollout, Step
from agentsgym.types.text import finite, plain

Json = dict[str, Any]
Lines = Sequence[StoredRollout]

# -- conversations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages up to the agent's last one, and its actions and reflections by the numbers of their
    messages. It may go on over several episodes."""

    messages: list[Message]
    spoken: dict[int, Step]

    @property
    def tools(self) -> Json:
        """The tools that were offered last, as a JSON text, if there were some."""
        *_, last = self.spoken.values()
        return {"tools": json.dumps(plain(list(last.tools)))} if last.tools else {}


def conversations(rollout: Rollout) -> Iterator[Conversation]:
    """The conversations of a rollout. What no game can contain, in a foreign file, is left out."""
    for messages, turns in rollout.conversations():
        places = [n for n, message in enumerate(messages) if message.role == "assistant"]
        if turns and len(turns) == len(places):
            spoken = {place: turn[1] for place, turn in zip(places, turns, strict=True)}
            yield Conversation(messages[: places[-1] + 1], spoken)


def _plain(messages: Sequence[Message]) -> list[Json]:
    return [message.to_dict() for message in messages]


# -- the formats -----------------------------------------------------------------------------------


def messages(lines: Lines) -> Iterator[Json]:
    """One example per conversation."""
    for line in lines:
        for one in conversations(line.rollout):
            yield {
                "messages": _plain(one.messages),
                **one.tools,
                "rewards": [finite(step.reward) for step in one.spoken.values()],
                "malformed": [step.unread for step in one.spoken.values()],
                **about(line),
            }


def tokens(lines: Lines) -> Iterator[Json]:
    """One example per row of tokens: the ids that the model saw and sampled, and 1 for the agent's.
    Rows without an action are left out, and those with ids that no tokenizer has."""
    for line in lines:
        for row in line.rollout.rows:
            mask = row.agent_token_mask.tolist()
            if any(mask) and row.token_ids.min() >= 0:
                yield {
                    "input_ids": row.token_ids.tolist(),
                    "assistant_masks": mask,
                    "sampled": row.sampled,
                    **about(line),
                }


def preference(lines: Lines) -> Iterator[Json]:
    """One example per pair: the conversation before the first action in which two rollouts of a
    task differ, and the actions of the one with more and the one with less reward.

    The rollout with most reward stands beside that with least, the second beside the last but one,
    and so on; each rollout is in one pair at most.
    """
    order = sorted(lines, key=lambda line: -line.rollout.final_reward)
    made: list[Any] = []
    for better, worse in zip(order, reversed(order), strict=True):
        rewards = better.rollout.final_reward, worse.rollout.final_reward
        if rewards[0] < rewards[1] or not differ(rewards):
            return
        pair = _difference(better.rollout, worse.rollout)
        if pair is not None and pair not in made:
            made.append(pair)
            yield {
                **pair,
                "rejected_reward": worse.rollout.final_reward,
                "rejected_rollout": worse.rollout.index,
                **about(better),
            }


def _difference(better: Rollout, worse: Rollout) -> Json | None:
    """The first action that differs; None if the environment's words differ before it."""
    for one, other in zip(conversations(better), conversations(worse), strict=False):
        pairs = zip(one.messages, other.messages, strict=False)
        place = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
        if place is not None:
            pair = {
                "prompt": _plain(one.messages[:place]),
                "chosen": _plain([one.messages[place]]),
                "rejected": _plain([other.messages[place]]),
                **one.tools,
            }
            return pair if place in one.spoken and place in other.spoken else None
        if len(one.messages) != len(other.messages):
            return None
    return None


def about(line: StoredRollout) -> Json:
    """Where an example comes from. `task` and `env_config` are JSON."""
    rollout = line.rollout
    win = record(rollout).win
    return {
        "env": rollout.env_class_path,
        "env_config": _json(rollout.env_config),
        "task": _json(rollout.task_data),
        "reward": rollout.final_reward,
        "win": None if win is None else float(win),
        "phase": line.phase,
        "training_step": line.step,
        "group": rollout.group,
        "rollout": rollout.index,
        "session_id": rollout.session_id,
    }


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(plain(value), ensure_ascii=False, sort_keys=True)
