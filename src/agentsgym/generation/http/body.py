"""The body of an HTTP answer, bounded after decompression."""

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

MAX_BODY_BYTES = 32 * 2**20
"""Limit for one decompressed answer; far more than the tokens of one action need."""

_PIECE = 64 * 2**10
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class BadBody(ValueError):
    """A body is too large or cannot be decompressed; the message says which."""


async def read_body(answer: "aiohttp.ClientResponse") -> str:
    """The text of an answer whose body is still compressed (`auto_decompress=False`).

    Decoded as UTF-8 regardless of the server's charset; invalid bytes become U+FFFD. Raises
    BadBody.
    """
    body = _Body(answer.headers.get("Content-Encoding", "identity").strip().lower())
    async for piece in answer.content.iter_chunked(_PIECE):
        body.add(piece)
    return body.received.decode("utf-8", errors="replace")


class _Body:
    """Collects pieces, decompressed."""

    def __init__(self, encoding: str) -> None:
        if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
            raise BadBody(f"its body is encoded as {encoding[:40]!r}; we asked for gzip or none")
        self._zlib = None if encoding in ("identity", "") else zlib.decompressobj(_GZIP_OR_ZLIB)
        self.received = bytearray()

    def add(self, piece: bytes) -> None:
        """Add a piece as it was sent."""
        room = MAX_BODY_BYTES + 1 - len(self.received)
        try:
            self.received += piece if self._zlib is None else self._zlib.decompress(piece, room)
        except zlib.error as error:
            raise BadBody(f"its body cannot be decompressed: {error}") from None
        if len(self.received) > MAX_BODY_BYTES:
            raise BadBody(f"its body exceeds {MAX_BODY_BYTES // 2**20} MiB")
