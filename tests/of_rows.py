"""Records drawn by hand. No other test knows how a rollout, an episode or a step is made, or how
the tokens of rows become a record: of `agentsgym.types` they use what can be read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentsgym.types import Episode, Message, Rollout, Row, Step, StepSpan


@dataclass(frozen=True)
class Drawn:
    """A row: its ids; its spans (episode, step, start, stop), the last of which ends it; the
    log-probabilities of all its tokens; why it begins."""

    ids: Sequence[int]
    spans: Sequence[tuple[int, int, int, int]]
    logprobs: Sequence[float] | None = None
    begins: str = "episode"
    rewrites: str = ""
    sampled: bool = True

    def __post_init__(self) -> None:
        if not self.spans or self.spans[-1][3] != len(self.ids):
            raise ValueError(f"a row ends with an answer: {len(self.ids)} ids, {self.spans}")


def drawn(row: Row, **changes: Any) -> Drawn:
    """A row of a rollout, to be drawn into another one."""
    spans = [(s.episode, s.step, s.start, s.stop) for s in row.spans]
    made = Drawn(row.token_ids, spans, row.logprobs, row.begins, row.rewrites, row.sampled)
    return replace(made, **changes)


def span_of(episode: int, step: int, start: int, stop: int) -> StepSpan:
    """The place of a step's own tokens in a row."""
    return StepSpan(episode, step, start, stop)


def step_of(
    index: int = 0,
    observation: str = "",
    action: str = "",
    reward: float = 0.0,
    done: bool = False,
    info: Mapping[str, Any] | None = None,
    **more: Any,
) -> Step:
    """A step of texts."""
    asked, said = Message("user", observation), Message("assistant", action)
    return Step(index, (asked,), said, reward, done, {} if info is None else info, **more)


def retold(step: Step, observation: str | None = None, action: str | None = None) -> Step:
    """The step with another `observation` or `action`."""
    asked = step.observation if observation is None else observation
    said = step.action if action is None else action
    messages = (Message("user", asked),)
    return replace(step, messages=messages, answer=Message("assistant", said), said=None)


def episode_of(
    *steps: Step,
    index: int = 0,
    reward: float | None = None,
    weight: float = 1.0,
    reason: str = "done",
) -> Episode:
    """An episode, a conversation of its own. It earns what its steps do, unless `reward` says
    otherwise."""
    earned = sum(step.reward for step in steps) if reward is None else reward
    return Episode(index, steps, earned, weight, reason)


def unasked(episode: Episode) -> Episode:
    """The episode as a conversation that begins with its first answer."""
    first, *others = episode.steps
    return replace(episode, steps=(replace(first, messages=()), *others))


def rollout_of(
    episodes: Iterable[Episode] = (),
    rows: Iterable[Drawn] = (),
    *,
    group: int = 0,
    index: int = 0,
    env: str = "Toy",
    config: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    session_id: str | None = None,
    **more: Any,
) -> Rollout:
    """A rollout whose steps have the tokens of these rows, or none. Without episodes they are made
    for the steps that the rows name, which earn nothing."""
    rows = tuple(rows)
    played, tape = _placed(tuple(episodes) or _named(rows), rows)
    return Rollout(
        session_id=f"{group}-{index}" if session_id is None else session_id,
        group=group,
        index=index,
        env_class_path=env,
        env_config=config or {},
        task_data=task or {},
        episodes=played,
        **tape,
        **more,
    )


def redrawn(
    rollout: Rollout,
    episodes: Iterable[Episode] | None = None,
    rows: Iterable[Drawn] | None = None,
    **changes: Any,
) -> Rollout:
    """The rollout with other episodes or rows."""
    own = map(drawn, rollout.rows) if rows is None else rows
    played = rollout.episodes if episodes is None else tuple(episodes)
    placed, tape = _placed(played, tuple(own))
    return replace(rollout, episodes=placed, **tape, **changes)


def with_logprobs(rollout: Rollout, logprobs: Iterable[Sequence[float]]) -> Rollout:
    """The rollout with other log-probabilities of each row's tokens."""
    pairs = zip(rollout.rows, logprobs, strict=True)
    return redrawn(rollout, rows=[drawn(row, logprobs=values) for row, values in pairs])


def split(rollout: Rollout, **begins: str) -> Rollout:
    """The rollout of one row as one of two, of which the second has the last step."""
    (row,) = rollout.rows
    *earlier, last = drawn(row).spans
    stop = earlier[-1][3]
    first = drawn(row, ids=row.token_ids[:stop], logprobs=row.logprobs[:stop], spans=earlier)
    context = np.where(np.arange(last[3]) < last[2], 0.0, row.logprobs)
    second = drawn(row, logprobs=context, spans=[last], **begins)
    return redrawn(rollout, rows=[first, second])


def _placed(
    episodes: tuple[Episode, ...], rows: tuple[Drawn, ...]
) -> tuple[tuple[Episode, ...], dict[str, Any]]:
    """The episodes, each of whose steps has the tokens before its answer and after the one before
    it in its row; and the tape."""
    order = [(e.index, k) for e in episodes for k in range(len(e.steps))]
    numbers = {key: number for number, key in enumerate(order)}
    found: dict[tuple[int, int], tuple[dict[str, Any], Drawn, tuple[int, int, int]]] = {}
    for row in rows:
        parent, begin = None, 0
        for episode, step, start, stop in row.spans:
            own: dict[str, Any] = {"parent": parent, "whole": parent is None, "begins": ""}
            if parent is None:
                own |= {"begins": row.begins, "rewrites": row.rewrites}
                if row.begins == "template":
                    own["parent"] = numbers[episode, step] - 1
            found[episode, step] = own | {"sampled": row.sampled}, row, (begin, start, stop)
            parent, begin = numbers[episode, step], stop
    ids: list[int] = []
    logprobs: list[float] = []
    at: list[tuple[int, int, int]] = []
    changed: list[Step] = []
    for episode, k in order:
        step = episodes[[e.index for e in episodes].index(episode)].steps[k]
        begun = {"parent": len(at) - 1, "whole": False, "begins": ""} if k else {}
        fields, row, (begin, start, stop) = found.get(
            (episode, k), (begun, Drawn([0], [(0, 0, 0, 1)]), (0, 0, 0))
        )
        changed.append(replace(step, **fields))
        first = len(ids)
        ids += [int(token) for token in row.ids[begin:stop]]
        given = [0.0] * len(row.ids) if row.logprobs is None else row.logprobs
        logprobs += [float(value) for value in given[begin:stop]]
        at.append((first, first + start - begin, len(ids)))
    left = iter(changed)
    played = tuple(replace(e, steps=tuple(next(left) for _ in e.steps)) for e in episodes)
    tape = {
        "token_ids": np.array(ids, np.int32),
        "logprobs": np.array(logprobs, np.float32),
        "at": np.array(at, np.int32).reshape(-1, 3),
    }
    return played, tape


def _named(rows: Iterable[Drawn]) -> tuple[Episode, ...]:
    """Episodes of the steps that rows name."""
    keys = sorted(place[:2] for row in rows for place in row.spans)
    numbers = sorted({number for number, _ in keys})
    return tuple(
        episode_of(*(step_of(k) for own, k in keys if own == number), index=number)
        for number in numbers
    )
