"""Selects the session that reads a prompt first, so that others with the prompt can copy it."""

from agentsgym.generation.embedded.batch import Ints
from agentsgym.types import GenerationRequest

Key = int | str


class PromptLeaders:
    """One leading session for each group and for each whole prompt.

    A leader is only a hint: the tokens that it still holds are compared one by one.
    """

    def __init__(self) -> None:
        self._leader: dict[Key, str] = {}
        self._led: dict[str, list[Key]] = {}

    def candidates(self, request: GenerationRequest, context: Ints) -> list[str]:
        """Leaders of the request's prompt and group, other than itself."""
        leaders = [self._leader.get(key) for key in _keys(request, context)]
        return [name for name in leaders if name is not None and name != request.session_id]

    def lead(self, request: GenerationRequest, context: Ints) -> None:
        """Make the request's session a leader: it reads this prompt itself and others may copy."""
        for key in _keys(request, context):
            self._leader[key] = request.session_id
            self._led.setdefault(request.session_id, []).append(key)

    def forget(self, session_id: str) -> None:
        """Remove a session that has ended."""
        for key in self._led.pop(session_id, ()):
            if self._leader.get(key) == session_id:
                del self._leader[key]


def _keys(request: GenerationRequest, context: Ints) -> list[Key]:
    keys: list[Key] = [hash(context.tobytes())]
    return keys if request.group is None else [*keys, f"group {request.group}"]
