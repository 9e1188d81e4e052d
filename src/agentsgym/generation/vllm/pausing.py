"""Paused servers: a learner pauses one while it replaces full weights that others sample from."""

import asyncio
import logging
import time

from agentsgym.generation.http import HttpError, JsonClient, Unreachable

logger = logging.getLogger(__name__)

WAIT_SECONDS = 600.0
"""How long a process that must not resume a server waits for the one that paused it."""
RESUME_SECONDS = 60.0
"""How long a server stays paused before a learner takes the one that paused it for ended: it may be
another one, which shares the server and loads weights."""
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
    """Return when a server is not paused. `resume`: no other process of this run pauses it, so a
    pause that lasts is left from a learner that has ended, and this ends it; its weights are not
    known.

    Raises Unreachable if the server stays paused, or does not answer.
    """
    began = time.monotonic()
    told = resumed = False
    while await is_paused(client, url):
        waited = time.monotonic() - began
        if waited >= WAIT_SECONDS:
            raise Unreachable(
                url,
                "it is paused, as by a learner that loads weights; if none does, the next learner "
                f"resumes it, or: curl -X POST {url}/resume",
            )
        if not told:
            logger.warning("%s is paused, as by a learner that loads weights; waiting for it", url)
            told = True
        if resume and not resumed and waited >= RESUME_SECONDS:
            logger.warning("%s was left paused by a learner that ended; it is resumed", url)
            await client.post(f"{url}/resume", {}, _SECONDS)
            resumed = True
        else:
            await asyncio.sleep(_LOOK)
