"""One end of a socket between this process and a worker: numbered messages, each whole or not at
all."""

import socket
import struct
import time

from agentsgym.rollout.threads import check_wanted

MOST_BYTES = 256 * 1024 * 1024
"""Of one message."""
_HEAD = struct.Struct("!QQ")
_SLICE = 0.2


class TookTooLong(Exception):
    """The other end did not do its part in time."""


class BrokenChannel(OSError):
    """What comes from the other end is no message."""


class Deadline:
    """A point in time until which to wait for the other end."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def next_wait(self) -> float:
        """How long to wait before asking again. Raises TookTooLong, or Abandoned."""
        check_wanted()
        left = self._end - time.monotonic()
        if left <= 0:
            raise TookTooLong
        return min(left, _SLICE)


class Channel:
    """Sends and receives; without a deadline it waits for as long as it takes."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, number: int, message: bytes, deadline: Deadline | None = None) -> None:
        """Send a message. Raises TookTooLong, OSError where the other end is gone."""
        data = memoryview(_HEAD.pack(number, len(message)) + message)
        while data:
            self._wait(deadline)
            try:
                data = data[self._socket.send(data) :]
            except TimeoutError:
                continue

    def receive(self, deadline: Deadline | None = None) -> tuple[int, bytes]:
        """The next message and its number.

        Raises TookTooLong, EOFError where the other end is gone, BrokenChannel.
        """
        number, length = _HEAD.unpack(self._read(_HEAD.size, deadline))
        if length > MOST_BYTES:
            raise BrokenChannel(f"a message of {length} bytes was announced")
        return number, self._read(length, deadline)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _read(self, length: int, deadline: Deadline | None) -> bytes:
        data = bytearray(length)
        view, got = memoryview(data), 0
        while got < length:
            self._wait(deadline)
            try:
                count = self._socket.recv_into(view[got:])
            except TimeoutError:
                continue
            if count == 0:
                raise EOFError
            got += count
        return bytes(data)

    def _wait(self, deadline: Deadline | None) -> None:
        self._socket.settimeout(deadline.next_wait() if deadline else None)
