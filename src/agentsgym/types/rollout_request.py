"""The request for one rollout of one task."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """One rollout to play: a dataset row's task, its group and its number in the group.

    `seed` is the seed of the sampling noise and `session_id` the name of the session. No row of
    tokens becomes longer than `max_rollout_tokens` (None: no limit).
    """

    env_class_path: str
    env_config: Mapping[str, Any]
    task_data: Mapping[str, Any]
    group: int
    index: int
    seed: int
    session_id: str
    max_rollout_tokens: int | None = None

    @classmethod
    def of(
        cls,
        row: Mapping[str, Any],
        group: int,
        index: int,
        seed: int,
        *,
        max_rollout_tokens: int | None = None,
    ) -> Self:
        """The request for rollout number `index` of `group`, on a row of the dataset schema."""
        return cls(
            row["env_class_path"],
            row["env_config"],
            row["task_data"],
            group,
            index,
            seed,
            f"{group:05d}-{index:03d}-{seed:016x}",
            max_rollout_tokens,
        )


def session_seed(*parts: object) -> int:
    """A 63-bit seed that depends only on these parts (blake2b of their reprs)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
