"""Our environments as a taskset and an environment of verifiers (the plugin `agentsgym_v1`), and a
harness without a program of its own."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal, TypeVar

import aiohttp
import verifiers.v1 as vf
from verifiers.v1 import graph

from agentsgym.envs import ConfigError, make
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import tasks_of
from agentsgym.rollout.failures import last_line
from agentsgym.rollout.stepping import SteppedTrial
from agentsgym.types import Rollout

PLUGIN = "agentsgym_v1"
"""The id under which verifiers finds the harness."""

ENDPOINT: ContextVar[str] = ContextVar("agentsgym_endpoint", default="")
"""The endpoint of the session that this task of the event loop plays; "" in verifiers' own runs."""

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
        ours = ENDPOINT.get()
        answer = await _post(ours or endpoint, secret, ctx.model, conversation)
        if ours:  # verifiers' own endpoint records the turn itself
            text = json.loads(answer)["choices"][0]["message"]["content"]
            graph.prepare_turn(trace, conversation).commit(_response(trace, text))
        return _DONE

    def _conversation(self, data: Any) -> list[Any]:
        system, prompt = self.resolve_prompt(data)
        messages = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt)
        return messages if system is None else [vf.SystemMessage(content=system), *messages]


async def _post(endpoint: str, secret: str, model: str, conversation: Sequence[Any]) -> str:
    """The endpoint's answer, as it came."""
    body = {"model": model, "messages": [_plain(message) for message in conversation]}
    headers = {"Authorization": f"Bearer {secret}"}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.post(f"{endpoint}/chat/completions", json=body, headers=headers) as response,
    ):
        text = await response.text()
        if response.status >= 400:
            raise vf.HarnessError(f"the model endpoint answered {response.status}: {text[:500]}")
        return text


def _plain(message: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = message.model_dump(mode="json", exclude_none=True)
    return dumped


def _response(trace: Any, answer: str) -> Any:
    return vf.Response(
        id=f"{trace.id}-{trace.num_turns}",
        created=int(time.time()),
        model="agentsgym",
        message=vf.AssistantMessage(content=answer),
        finish_reason="stop",
    )


T = TypeVar("T")


class AgentsgymData(vf.TaskData):  # type: ignore[misc]
    """A task of ours. verifiers stores it in traces.jsonl, and shows the model nothing of it."""

    task_data: dict[str, Any]


class AgentsgymTask(vf.Task[AgentsgymData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """A task of ours; the environment scores it."""


class AgentsgymConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which environment, and which of its tasks."""

    env: str = "TwentyQuestions"
    """A registered name; a dotted path needs `trust`."""
    env_config: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """The environment's settings."""
    split: Literal["train", "eval"] = "eval"
    """Whether the training or the evaluation tasks are played."""
    trust: bool = False
    """Whether `env` may name code outside of agentsgym."""


class AgentsgymTaskset(vf.Taskset[AgentsgymTask, AgentsgymConfig]):  # type: ignore[misc]
    """The tasks of one of our environments."""

    def __init__(self, config: AgentsgymConfig) -> None:
        super().__init__(config)
        self.env: MultistepEnv = make(config.env, None, config.env_config, trust=config.trust)

    def load(self) -> Iterable[AgentsgymTask]:
        """The tasks of the dataset, in its order."""
        env = self.env
        for number, row in enumerate(tasks_of(env, self.config.split)):
            data = AgentsgymData(
                name=f"{env.name}#{number}",
                system_prompt=env.config.system_prompt,
                task_data=row["task_data"],
            )
            yield AgentsgymTask(data, self.config.task)


class AgentsgymEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """The one seat of our environments. Its harness starts no process, so the local runtime is
    enough."""

    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class AgentsgymEnv(vf.Env[AgentsgymEnvConfig]):  # type: ignore[misc]
    """Plays one trial per episode of verifiers, in one conversation.

    The trace gets the trial's reward, the metrics `win` and `steps`, and in `info["agentsgym"]` the
    rewards of all steps. Raises ConfigError for trials whose episodes have conversations of their
    own.
    """

    def __init__(self, config: AgentsgymEnvConfig) -> None:
        super().__init__(config)
        if why := self._env.config.several_conversations:
            raise ConfigError(
                f"{self._env.name}: for verifiers env_config.carry must be 'full', without a "
                f"context_limit: one trace has one conversation, got {why}"
            )

    @property
    def _env(self) -> MultistepEnv:
        env: MultistepEnv = self.taskset.env
        return env

    async def run(self, task: Any, agents: Any) -> None:
        """Step one trial with the answers of the seat `player`."""
        trial = await self._call(partial(SteppedTrial, self._env, task.data.task_data))
        try:
            async with agents.player.interaction(task) as interaction:
                while not trial.over:
                    segment = await interaction.turn(trial.new_messages[-1]["content"])
                    if segment.terminated:
                        await self._call(partial(trial.cut, "terminated"))
                        break
                    await self._call(partial(trial.act, _answer(segment)))
        finally:
            await self._call(trial.close)
        if interaction.trace.ok:  # where the model's endpoint failed, there is nothing to score
            record(interaction.trace, trial.rollout)

    async def _call(self, step: Callable[[], T]) -> T:
        """Run a step of the environment; one that blocks runs in a thread."""
        return await asyncio.to_thread(step) if self._env.blocking else step()


def _answer(segment: Any) -> str:
    """The model's words as they are (`last_reply` strips them)."""
    return next(
        (m.content or "" for m in reversed(segment.messages) if isinstance(m, vf.AssistantMessage)),
        segment.last_reply,
    )


def record(trace: Any, rollout: Rollout) -> None:
    """Put a rollout's figures onto verifiers' trace. Raises RuntimeError if the rollout failed."""
    if rollout.error is not None:
        raise RuntimeError(f"the environment failed: {last_line(rollout.error)}")
    reward, played = rollout.final_reward, rollout.episodes
    if not math.isnan(reward):  # no scored episode was played
        trace.record_reward("reward", reward, 1.0)
    wins = [e.win for e in played if e.score_weight > 0 and e.win is not None]
    if wins:
        trace.record_metric("win", sum(wins) / len(wins))
    trace.record_metric("steps", float(sum(len(episode.actions) for episode in played)))
    trace.info["agentsgym"] = {
        "step_rewards": [[step.reward for step in e.actions] for e in played],
        "stop_reasons": [episode.stop_reason for episode in played],
        "scored": [episode.score_weight > 0 for episode in played],
    }
