"""The walk of `scale.py` for verifiers 0.4, which finds taskset, environment and harness by this
module's name: its own loop of an episode, with answers that come after the same latencies.

The harness answers in the process, without a program, a server or tokens: what it takes is the
least that verifiers does for a turn.
"""

import asyncio
import time
from typing import Any

import scale_game as game
import verifiers.v1 as vf
from verifiers.v1 import graph

__all__ = ["LatencyHarness", "ScaleTaskset", "WalkEnv"]

_DONE = vf.ProgramResult(0, "", "")


class WalkData(vf.TaskData):
    game: int
    turns: int


class WalkTask(vf.Task[WalkData, vf.State, vf.TaskConfig]): ...


class WalkConfig(vf.TasksetConfig):
    games: int = 10
    turns: int = 8


class ScaleTaskset(vf.Taskset[WalkTask, WalkConfig]):
    def load(self) -> Any:
        """One task per game."""
        for number in range(self.config.games):
            turns = game.turns(number, self.config.turns)
            yield WalkTask(WalkData(game=number, turns=turns), self.config.task)


class WalkEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class WalkEnv(vf.Env[WalkEnvConfig]):
    async def run(self, task: Any, agents: Any) -> None:
        """Turn by turn, with the observations and the reward of our side."""
        data = task.data
        async with agents.player.interaction(task) as interaction:
            for turn in range(data.turns):
                segment = await interaction.turn(game.observation(data.game, turn))
                if segment.terminated:
                    raise RuntimeError(f"game {data.game} ended at turn {turn}")
            earned = game.reward(data.turns, segment.last_reply)
            interaction.trace.record_reward("reward", earned, 1.0)


class LatencyHarness(vf.Harness[vf.HarnessConfig]):
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
        """Wait as long as our engine does, and answer what it answers."""
        _, prompt = self.resolve_prompt(data)
        messages = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt)
        draw = game.drawn("request", data.game, trace.num_turns)
        await asyncio.sleep(game.latency(draw))
        said = vf.AssistantMessage(content=game.text_of(game.text_number(draw)))
        response = vf.Response(
            id=f"{trace.id}-{trace.num_turns}",
            created=int(time.time()),
            model="scale",
            message=said,
            finish_reason="stop",
        )
        graph.prepare_turn(trace, messages).commit(response)
        return _DONE
