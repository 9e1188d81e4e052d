"""Splits Twenty Questions tasks into training and evaluation: disjoint and deterministic."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypedDict

EVAL_SHARE = 5
"""One out of this many secrets, or hint sets, is held out for evaluation."""

Hints = list[tuple[str, bool]]


class Task(TypedDict):
    """`task_data` of Twenty Questions."""

    solution: str
    seed: int


def split_tasks(
    secrets: Sequence[str],
    hints_of: Callable[[str, int], Hints],
    *,
    by: str,
    train_per_secret: int,
    eval_per_secret: int,
) -> tuple[list[Task], list[Task]]:
    """Training and evaluation tasks, secrets interleaved.

    `by="secrets"` holds out secrets, `by="hints"` pairs of a secret and its opening hints. A secret
    with fewer different hint sets than requested gets fewer tasks.
    """
    if by == "secrets":
        train = [secret for secret in secrets if not _held_out(secret)]
        held_out = [secret for secret in secrets if _held_out(secret)]
        return (
            [Task(solution=s, seed=k) for k in range(train_per_secret) for s in train],
            [Task(solution=s, seed=k) for k in range(eval_per_secret) for s in held_out],
        )
    pairs = [
        _split_hints(secret, hints_of, train_per_secret, eval_per_secret) for secret in secrets
    ]
    return (
        _interleave(secrets, [train for train, _ in pairs]),
        _interleave(secrets, [held_out for _, held_out in pairs]),
    )


def _split_hints(
    secret: str, hints_of: Callable[[str, int], Hints], train_wanted: int, eval_wanted: int
) -> tuple[list[int], list[int]]:
    """Seeds whose hint sets differ from each other, for training and for evaluation."""
    train: list[int] = []
    held_out: list[int] = []
    for seed, hints in _distinct_hints(secret, hints_of, 20 * (train_wanted + eval_wanted)):
        chosen, wanted = (
            (held_out, eval_wanted) if _held_out((secret, hints)) else (train, train_wanted)
        )
        if len(chosen) < wanted:
            chosen.append(seed)
        if len(train) == train_wanted and len(held_out) == eval_wanted:
            break
    return train, held_out


def _distinct_hints(
    secret: str, hints_of: Callable[[str, int], Hints], attempts: int
) -> Iterator[tuple[int, Hints]]:
    seen = set()
    for seed in range(attempts):
        hints = hints_of(secret, seed)
        if tuple(hints) not in seen:
            seen.add(tuple(hints))
            yield seed, hints


def _interleave(secrets: Sequence[str], seeds: Sequence[Sequence[int]]) -> list[Task]:
    longest = max((len(own) for own in seeds), default=0)
    return [
        Task(solution=secret, seed=own[k])
        for k in range(longest)
        for secret, own in zip(secrets, seeds, strict=True)
        if k < len(own)
    ]


def _held_out(key: object) -> bool:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % EVAL_SHARE == 0
