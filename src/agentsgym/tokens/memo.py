"""A bounded cache of encoded texts: the rollouts of a group need the same ones again and again."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_CHARACTERS = 2_000_000  # tens of megabytes, including the token ids


class Memo(Generic[K, V]):
    """A mapping that holds at most `characters` of text and drops the oldest entries first.

    Threads may share it. Copies and unpickled objects start empty.
    """

    def __init__(self, characters: int = _CHARACTERS) -> None:
        self._most = characters
        self._held = 0
        # A dict would search its beginning, where many entries are gone, for the oldest one.
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type["Memo[K, V]"], tuple[int]]:
        return Memo, (self._most,)

    def get(self, key: K) -> V | None:
        """The value stored by `put`, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: K, value: V, characters: int) -> None:
        """Store `value`; `characters` is its length with its key. Too long values are dropped."""
        with self._lock:
            if key in self._entries or characters > self._most:
                return
            self._entries[key] = (value, characters)
            self._held += characters
            while self._held > self._most:
                _, (_, freed) = self._entries.popitem(last=False)
                self._held -= freed
