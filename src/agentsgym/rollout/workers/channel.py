"""One end of a socket between this process and a worker. Messages are numbered and arrive whole
or not at all."""

import socket
import struct
import time

from agentsgym.rollout.threads import check_wanted

MOST_BYTES = 256 * 1024 * 1024
"""Limit for one message."""
_HEAD = struct.Struct("!QQ")
_SLICE = 0.2


class TookTooLong(Exception):
    """The other end did not answer in time."""


class BrokenChannel(OSError):
    """The other end sent data that is not a message."""


class Deadline:
    """The time until which to wait for the other end."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def next_wait(self) -> float:
        """Seconds until the next check. Raises TookTooLong or Abandoned."""
        check_wanted()
        left = self._end - time.monotonic()
        if left <= 0:
            raise TookTooLong
        return min(left, _SLICE)


class Channel:
    """Sends and receives messages; without a deadline it waits without limit."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, number: int, message: bytes, deadline: Deadline | None = None) -> None:
        """Send a message. Raises TookTooLong, and OSError if the other end is closed."""
        data = memoryview(_HEAD.pack(number, len(message)) + message)
        while data:
            self._wait(deadline)
            try:
                data = data[self._socket.send(data) :]
            except TimeoutError:
                continue

    def receive(self, deadline: Deadline | None = None) -> tuple[int, bytes]:
        """The next message and its number.

        Raises TookTooLong, BrokenChannel, and EOFError if the other end is closed.
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
