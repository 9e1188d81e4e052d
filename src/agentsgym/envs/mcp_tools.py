"""The tools of an MCP server, a program that speaks over stdio or a server at a URL, as tools of a
`ToolEnv`.

A connection is a task in the process's loop for tools: it opens the server, holds the session until
it is closed, and then ends the server's process. It opens when it is first needed, and again after
it broke. It also ends with its `McpTools` object and with this process.
"""

import asyncio
import contextlib
import os
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentsgym.envs.extras import ensure
from agentsgym.envs.function_tools import Outcome, ToolError, in_time, tool_loop
from agentsgym.types.messages import ToolSchema
from agentsgym.types.names import ConfigError
from agentsgym.types.text import error_text

START_SECONDS = 30.0
REWARD, DONE = "agentsgym/reward", "agentsgym/done"
"""Keys of a result's `_meta`, which the model never reads: an `Outcome`'s reward and end."""
_CLOSE_SECONDS = 10.0  # the package ends a program that stays within about 4
_PING_SECONDS = 2.0
_MOST_WORDS = 2000  # of a program's error output
_OPENING = threading.Lock()


class McpTools:
    """The tools of one server: the program `command`, which is started once per process, or the
    server at `url` (streamable HTTP).

    Args:
        command: a program and its arguments.
        url: a server's address, `http://127.0.0.1:8000/mcp`.
        variables: environment variables of the program, beside the package's few defaults.
        headers: what is sent to the server with each request, such as a key.
        outcomes: whether the server may pay and end the episode, by `agentsgym/reward` and
            `agentsgym/done` in the `_meta` of a result (see `Outcome`); otherwise these are
            ignored, so that no server decides about a reward that nobody lets it decide about.

    Raises ConfigError without a server, MissingExtra without the package `mcp`.
    """

    def __init__(
        self,
        *,
        command: Sequence[str] = (),
        url: str | None = None,
        variables: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        outcomes: bool = False,
    ) -> None:
        if bool(command) == bool(url) or isinstance(command, str):
            raise ConfigError("McpTools needs either a command, as a list, or a url")
        ensure("mcp", "mcp")
        self._server = _Server(tuple(command), url, dict(variables or {}), dict(headers or {}))
        self.outcomes = outcomes
        self._connection: _Connection | None = None

    @cached_property
    def tools(self) -> "list[McpTool]":
        """The server's tools. Raises ConfigError if the server does not start or answer."""
        try:
            listed = in_time(_listed(self.session()), START_SECONDS)
        except Exception as error:
            self.close()
            raise ConfigError(f"the MCP server {self._server}: {_reason(error)}") from error
        return [McpTool(self, one) for one in listed]

    def session(self) -> Any:
        """The open session of the server. Raises ToolError if there is none in time."""
        with _OPENING:
            if self._connection is None or self._connection.done:
                self._connection = _Connection(self._server)
                weakref.finalize(self, self._connection.close)
            connection = self._connection
        return connection.session()

    def end_if_hanging(self, session: Any) -> None:
        """Close unless the server still answers anything at all."""
        try:
            in_time(session.send_ping(), _PING_SECONDS)
        except Exception:  # a connection breaks in many ways
            self.close()

    def close(self) -> None:
        """End the connection and a program with it; the next call opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_connection": None}  # another process opens its own


class McpTool:
    """One tool of a server."""

    waits = True

    def __init__(self, server: McpTools, described: Any) -> None:
        self._server = server
        self.schema: ToolSchema = {
            "type": "function",
            "function": {
                "name": described.name,
                "description": described.description or "",
                "parameters": described.inputSchema,
            },
        }

    def run(self, env: Any, state: Any, arguments: Mapping[str, Any], seconds: float) -> Outcome:
        """The server's result as text, with what it pays if the server may. Raises ToolError if it
        is an error."""
        name = self.schema["function"]["name"]
        session = self._server.session()
        try:
            result = in_time(session.call_tool(name, dict(arguments)), seconds)
        except ToolError:
            self._server.end_if_hanging(session)
            raise
        except Exception as error:  # the connection may break in many ways
            self._server.close()
            raise ToolError(f"the server of the tool failed: {_reason(error)}") from error
        text = "\n".join(getattr(part, "text", f"[{part.type}]") for part in result.content)
        if result.isError:
            raise ToolError(text)
        paid = (result.meta or {}) if self._server.outcomes else {}
        return Outcome(text, paid.get(REWARD, 0.0), paid.get(DONE, False))


@dataclass(frozen=True, slots=True)
class _Server:
    """How to reach a server."""

    command: tuple[str, ...]
    url: str | None
    variables: dict[str, str] = field(repr=False)
    headers: dict[str, str] = field(repr=False)

    def __str__(self) -> str:
        return self.url or " ".join(self.command)

    def streams(self, words: Any) -> Any:
        """The context manager of the server's streams; a program writes its errors to `words`."""
        if self.url is not None:
            from mcp.client.streamable_http import streamablehttp_client

            return streamablehttp_client(self.url, headers=self.headers)
        from mcp.client.stdio import StdioServerParameters, stdio_client

        program, *arguments = self.command
        parameters = StdioServerParameters(
            command=program, args=arguments, env=self.variables or None
        )
        return stdio_client(parameters, errlog=words)


class _Connection:
    """One connection, from its start on."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._opened: Future[Any] = Future()
        self._closing = asyncio.Event()
        self._loop = tool_loop()
        self._ended = self._loop.start(self._hold())

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._ended.done()

    def session(self) -> Any:
        """The session, as soon as the server has answered. Raises ToolError."""
        try:
            return self._opened.result(START_SECONDS)
        except TimeoutError:
            raise ToolError(f"the server did not answer within {START_SECONDS:g} seconds") from None

    def close(self) -> None:
        """End it and wait until the server's program is gone."""
        with contextlib.suppress(Exception):  # a loop that died closed all that was in it
            self._loop.call_soon(self._closing.set)
            self._ended.result(_CLOSE_SECONDS)
        self._ended.cancel()

    async def _hold(self) -> None:
        from mcp import ClientSession

        with tempfile.TemporaryFile("w+", errors="replace") as words:
            try:
                async with (
                    self._server.streams(words) as (reading, writing, *_),
                    ClientSession(reading, writing) as session,
                ):
                    await asyncio.wait_for(session.initialize(), START_SECONDS)
                    self._opened.set_result(session)
                    await self._closing.wait()
            except BaseException as error:
                if not self._opened.done():
                    self._opened.set_exception(ToolError(f"{_reason(error)}{_last(words)}"))
                raise


def _last(words: Any) -> str:
    """The end of what a program wrote to its error output."""
    size = words.seek(0, os.SEEK_END)
    words.seek(max(0, size - _MOST_WORDS))
    text = words.read().strip()
    return f": {text}" if text else ""


async def _listed(session: Any) -> list[Any]:
    """All tools of a server, which may list them in parts."""
    tools, cursor = [], None
    while True:
        part = await session.list_tools(cursor)
        tools += part.tools
        cursor = part.nextCursor
        if not cursor:
            return tools


def _reason(error: BaseException) -> str:
    """The first error of a group, or the error itself, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error_text(error) or type(error).__name__
