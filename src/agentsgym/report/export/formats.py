"""The formats of an export: which examples, and the types of their columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentsgym.report.export.examples import (
    messages,
    preference,
    prompt_completion,
    tokens,
    whole_preference,
)
from agentsgym.report.export.selection import Filters
from agentsgym.runs.files import StoredRollout

if TYPE_CHECKING:
    from datasets import Features

Json = dict[str, Any]
_CHAT = [{"role": "string", "content": "string"}]
_ABOUT = {
    "env": "string",
    "env_config": "string",
    "task": "string",
    "reward": "float64",
    "win": "float64",
    "phase": "string",
    "training_step": "int64",
    "group": "int64",
    "rollout": "int64",
    "session_id": "string",
}
_PAIR = {
    "prompt": _CHAT,
    "chosen": _CHAT,
    "rejected": _CHAT,
    "rejected_reward": "float64",
    "rejected_rollout": "int64",
}


@dataclass(frozen=True, slots=True)
class Format:
    """One format: `examples` of a group's rollouts, and `columns` with their types (a list has the
    type of its entries)."""

    examples: Callable[[Sequence[StoredRollout], Filters], Iterator[Json]]
    columns: Mapping[str, Any]

    def features(self) -> "Features":
        """The types of the columns for `datasets`."""
        from datasets import Features

        return Features({name: _feature(kind) for name, kind in self.columns.items()})


FORMATS: Mapping[str, Format] = {
    "messages": Format(
        messages,
        {"messages": _CHAT, "rewards": ["float64"], "malformed": ["bool"], **_ABOUT},
    ),
    "prompt-completion": Format(
        prompt_completion,
        {
            "prompt": _CHAT,
            "completion": _CHAT,
            "episode": "int64",
            "step": "int64",
            "step_reward": "float64",
            **_ABOUT,
        },
    ),
    "tokens": Format(
        tokens,
        {"input_ids": ["int32"], "assistant_masks": ["int8"], "sampled": "bool", **_ABOUT},
    ),
    "preference": Format(
        preference,
        {**_PAIR, **_ABOUT},
    ),
    "preference-whole": Format(
        whole_preference,
        {**_PAIR, **_ABOUT},
    ),
}


def _feature(kind: Any) -> Any:
    from datasets import List, Value

    if isinstance(kind, list):
        return List(_feature(kind[0]))
    if isinstance(kind, dict):
        return {name: _feature(inner) for name, inner in kind.items()}
    return Value(kind)
