"""A fault that was found in a run."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, in a sentence; the numbers that show it; rollouts to look at, by the names
    that `agentsgym view --rollout` takes; and what to try, the likeliest first. `steps` are the
    first and the last optimizer step that it rests on, None where it rests on no step."""

    fault: str
    title: str
    evidence: tuple[str, ...]
    attempts: tuple[str, ...]
    rollouts: tuple[str, ...] = ()
    steps: tuple[int, int] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain data; what to try has the key `try`."""
        data = asdict(self)
        data["try"] = data.pop("attempts")
        return {name: list(v) if isinstance(v, tuple) else v for name, v in data.items()}
