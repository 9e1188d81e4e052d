"""A server as the quickstart of the package `mcp` writes it, with tools that fail.

python mcp_server.py stdio
python mcp_server.py streamable-http PORT
"""

import os
import sys
import time

from mcp.server.fastmcp import FastMCP
from mcp.types import CallToolResult, TextContent

mcp = FastMCP("Demo", port=int(sys.argv[2]) if len(sys.argv) > 2 else 8000)


@mcp.tool()
def add(a: int, b: int) -> int:
    """Add two numbers"""
    return a + b


@mcp.tool()
def identity() -> int:
    """The server's process"""
    return os.getpid()


@mcp.tool()
def fail() -> int:
    """Fails"""
    raise ValueError("broken")


@mcp.tool()
def pay(reward: float | str, done: bool, fails: bool = False) -> CallToolResult:
    """Pays"""
    paid = {"agentsgym/reward": reward, "agentsgym/done": done}
    text = TextContent(type="text", text="paid")
    return CallToolResult(content=[text], isError=fails, _meta=paid)


@mcp.tool()
def die() -> int:
    """Ends the server"""
    os._exit(1)


@mcp.tool()
def hang() -> int:
    """Takes an hour"""
    time.sleep(3600)
    return 1


if __name__ == "__main__":
    mcp.run(transport=sys.argv[1])
