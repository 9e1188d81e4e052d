"""guess_v1, whose environment fails on certain words of the agent."""

import asyncio
import sys

import guess_v1
import verifiers.v1 as vf
from guess_v1 import GuessTaskset

__all__ = ["FaultyEnv", "GuessTaskset"]


class FaultyEnv(vf.Env[guess_v1.GuessEnvConfig]):
    async def run(self, task, agents):
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                reply = segment.last_reply
                if reply == "break":
                    raise RuntimeError("the game broke")
                if reply == "exit":
                    raise SystemExit("not authenticated with prime")
                if reply == "vanish":
                    asyncio.get_running_loop().call_soon(sys.exit, "not authenticated with prime")
                    await asyncio.sleep(60)
                if reply == "stop":
                    break
                segment = await interaction.turn("Go on.")
