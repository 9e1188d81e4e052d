"""Checks that the data in a rollout shard is a valid rollout: types of values, equal lengths."""

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.runs.files.encoding import RolloutLine
from agentsgym.types import Row

Kinds = Mapping[str, tuple[type, ...]]

_NUMBER = (int, float)
_LINE: Kinds = {"phase": (str,), "step": (int,), "dataset": (str, NoneType)}
_ROLLOUT: Kinds = {
    "session_id": (str,),
    "group": (int,),
    "index": (int,),
    "env_class_path": (str,),
    "env_config": (dict,),
    "task_data": (dict,),
    "error": (str, NoneType),
    "seed": (int,),
    "policy_version": (int,),
}
_EPISODE: Kinds = {
    "index": (int,),
    "reward": _NUMBER,
    "score_weight": _NUMBER,
    "stop_reason": (str,),
}
_STEP: Kinds = {
    "index": (int,),
    "observation": (str,),
    "action": (str,),
    "reward": _NUMBER,
    "penalty": _NUMBER,
    "done": (bool,),
    "info": (dict,),
    "malformed": (bool,),
    "truncated": (bool,),
    "kind": (str,),
    "anchor": (str, NoneType),
}
_SPAN: Kinds = {"episode": (int,), "step": (int,), "start": (int,), "stop": (int,)}
_ROW: Kinds = {"begins": (str,), "sampled": (bool,), "rewrites": (str,)}
_LARGEST = 2**63


def checked(line: RolloutLine) -> RolloutLine:
    """The line. Raises DamagedFile with the first value that no rollout can have."""
    _check(line, _LINE, "")
    rollout = line.rollout
    _check(rollout, _ROLLOUT, "")
    for episode in rollout.episodes:
        _check(episode, _EPISODE, "episodes: ")
        for step in episode.steps:
            _check(step, _STEP, "steps: ")
            _check_numbers(step.token_rewards or (), _NUMBER, "token_rewards")
    for row in rollout.rows:
        _check_row(row)
    if line.advantages is not None:
        _check_advantages(line.advantages, rollout.rows)
    return line


def _check(thing: Any, kinds: Kinds, where: str) -> None:
    for name, allowed in kinds.items():
        value = getattr(thing, name)
        if type(value) not in allowed or (type(value) is int and abs(value) >= _LARGEST):
            raise DamagedFile(f"{where}{name} is {_short(value)}")


def _check_row(row: Row) -> None:
    _check(row, _ROW, "rows: ")
    if len(row.token_ids) != len(row.logprobs):
        raise DamagedFile("the lists of a row have different lengths")
    for span in row.spans:
        _check(span, _SPAN, "spans: ")
        if not 0 <= span.start <= span.stop <= len(row.token_ids):
            raise DamagedFile(f"a span from {span.start} to {span.stop} lies outside its row")


def _check_advantages(advantages: Sequence[Sequence[float]], rows: Sequence[Row]) -> None:
    for values in advantages:
        _check_numbers(values, _NUMBER, "advantages")
    if [len(values) for values in advantages] != [len(row.token_ids) for row in rows]:
        raise DamagedFile("advantages do not fit the rows")


def _check_numbers(values: Sequence[Any], allowed: tuple[type, ...], name: str) -> None:
    if not set(map(type, values)) <= set(allowed):
        raise DamagedFile(f"{name} contains a value that is not a number")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
