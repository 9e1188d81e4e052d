"""Paused servers: a learner pauses one while it replaces full weights that others sample from."""

import asyncio
import logging
import time

from agentsgym.generation.http.client import HttpError, JsonClient, Unreachable

logger = logging.getLogger(__name__)

WAIT_SECONDS = 600.0
"""How long a process that must not resume a server waits for the one that paused it."""
_SECONDS = 60.0
_LOOK = 0.25


async def is_paused(client: JsonClient, url: str) -> bool:
    """Whether a server holds back its requests. A server that does not tell, as outside development
    mode, cannot be paused either. Raises Unreachable if it does not answer."""
    try:
        answer = await client.get(f"{url}/is_paused", _SECONDS)
    except HttpError as error:
        if error.status is None:
            raise
        return False
    return isinstance(answer, dict) and answer.get("is_paused") is True


async def await_running(client: JsonClient, url: str, *, resume: bool) -> None:
    """Return when a server is not paused. `resume`: this process is the only one that pauses it, so
    a pause is left from a learner that has ended, and this ends it; its weights are not known.

    Raises Unreachable if the server stays paused, or does not answer.
    """
    end = time.monotonic() + WAIT_SECONDS
    while await is_paused(client, url):
        if resume:
            logger.warning("%s was left paused by a learner that ended; it is resumed", url)
            await client.post(f"{url}/resume", {}, _SECONDS)
        elif time.monotonic() >= end:
            raise Unreachable(
                url,
                "it is paused, as by a learner that loads weights; if none does, the next learner "
                f"resumes it, or: curl -X POST {url}/resume",
            )
        else:
            await asyncio.sleep(_LOOK)
