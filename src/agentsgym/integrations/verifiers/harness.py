"""A harness of verifiers without a program of its own: a conversation, one answer per segment.

The answer comes from the running `Exchange`, if our environment plays the task, otherwise from the
model endpoint that verifiers gives to every harness.
"""

import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import aiohttp
import verifiers.v1 as vf
from verifiers.v1 import graph

from agentsgym.integrations.exchange import Exchange, ExchangeEnded

PLUGIN = "agentsgym_v1"
"""The id under which verifiers finds the harness."""

ANSWERING: ContextVar[Exchange[Any] | None] = ContextVar("agentsgym_exchange", default=None)
"""The session that answers in this task of the event loop."""

_DONE = vf.ProgramResult(0, "", "")


class InProcessHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """Answers each turn with one message; starts no process and has no tools."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> Any:
        """Answer the conversation in `data`; the trace then has the turn."""
        if mcp_urls:
            raise vf.HarnessError("the harness agentsgym_v1 has no tools; use another harness")
        conversation = self._conversation(data)
        exchange = ANSWERING.get()
        if exchange is None:
            await _post(f"{endpoint}/chat/completions", secret, ctx.model, conversation)
            return _DONE
        try:
            said = await exchange.ask([_plain(message) for message in conversation])
        except ExchangeEnded:
            return _DONE  # a segment without a turn ends the exchange, which is then scored
        graph.prepare_turn(trace, conversation).commit(_response(trace, said))
        return _DONE

    def _conversation(self, data: Any) -> list[Any]:
        system, prompt = self.resolve_prompt(data)
        messages = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt)
        return messages if system is None else [vf.SystemMessage(content=system), *messages]


async def _post(url: str, secret: str, model: str, conversation: Sequence[Any]) -> None:
    """Let the endpoint answer; verifiers itself records the turn, an error or a stop."""
    body = {"model": model, "messages": [_plain(message) for message in conversation]}
    headers = {"Authorization": f"Bearer {secret}"}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.post(url, json=body, headers=headers) as response,
    ):
        text = await response.text()
        if response.status >= 400:
            raise vf.HarnessError(f"the model endpoint answered {response.status}: {text[:500]}")


def _plain(message: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = message.model_dump(mode="json", exclude_none=True)
    return dumped


def _response(trace: Any, said: str) -> Any:
    return vf.Response(
        id=f"{trace.id}-{trace.num_turns}",
        created=int(time.time()),
        model="agentsgym",
        message=vf.AssistantMessage(content=said),
        finish_reason="stop",
    )
