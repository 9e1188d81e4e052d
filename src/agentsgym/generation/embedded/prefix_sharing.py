"""A prompt that several sessions start from is read by one of them and copied by the others."""

from collections.abc import Mapping

from agentsgym.generation.embedded.batch import RowTable, shared_prefix
from agentsgym.types import GenerationRequest
from agentsgym.types.records import Ints

Key = int | str

_LEAST_SHARED = 8  # a shorter common prompt is read faster than copied


class SharedPrompts:
    """One reading session for each group and for each whole prompt.

    It is only a hint where to look: what that session still holds is compared token by token.
    """

    def __init__(self) -> None:
        self._reader: dict[Key, str] = {}
        self._keys: dict[str, list[Key]] = {}

    def share(
        self,
        table: RowTable,
        row_of: Mapping[str, int],
        row: int,
        request: GenerationRequest,
        context: Ints,
        reused: int,
    ) -> None:
        """Let `row`, which has `reused` tokens of its context cached, copy what a session with the
        same prompt reads or has read; else that session is this one from now on."""
        # A session in the middle of its own game gains nothing from another's prompt.
        if len(context) - reused < max(_LEAST_SHARED, reused):
            return
        keys = _keys(request, context)
        for reader in (self._reader.get(key) for key in keys):
            source = None if reader in (None, request.session_id) else row_of.get(reader or "")
            if source is None or table.source[source] >= 0:
                continue
            held = table.known[source] if table.active[source] else table.cached[source]
            shared = min(shared_prefix(table.tokens[source, :held], context), len(context) - 1)
            if shared - reused >= _LEAST_SHARED:
                table.source[row], table.shared[row] = source, shared
                return
        for key in keys:
            self._reader[key] = request.session_id
            self._keys.setdefault(request.session_id, []).append(key)

    def forget(self, session_id: str) -> None:
        """Remove a session that has ended."""
        for key in self._keys.pop(session_id, ()):
            if self._reader.get(key) == session_id:
                del self._reader[key]


def _keys(request: GenerationRequest, context: Ints) -> list[Key]:
    keys: list[Key] = [hash(context.tobytes())]
    return keys if request.group is None else [*keys, f"group {request.group}"]
