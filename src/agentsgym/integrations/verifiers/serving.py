"""An environment of verifiers that runs in an event loop of its own, for all sessions."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from agentsgym.integrations.exchange import Exchange, LoopThread
from agentsgym.integrations.verifiers.harness import ANSWERING, PLUGIN
from agentsgym.integrations.verifiers.refusals import check_taskset, only_seat

# verifiers wants to know a model; it is never asked.
_CONTEXT = vf.ModelContext(
    model="agentsgym",
    client=vf.EvalClientConfig(base_url="http://127.0.0.1:9/v1", api_key_var="AGENTSGYM_NO_KEY"),
)


def load(taskset: Mapping[str, Any], env_id: str) -> Any:
    """The environment of verifiers for a taskset, with our harness on its only seat.

    Raises CannotKeep for what our environments cannot do.
    """
    wanted = {"taskset": dict(taskset), **({"id": env_id} if env_id else {})}
    plain = resolve_env_config(wanted)
    seat = only_seat(plain, agent_config_fields(plain))
    ours = {"harness": {"id": PLUGIN}, "runtime": {"type": "subprocess"}}
    env = load_environment(resolve_env_config({**wanted, seat: ours}))
    check_taskset(env.taskset)
    return env


class Serving:
    """Runs episodes of `env`. `alive` until its loop dies or `close` is called."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.loop = LoopThread("agentsgym-verifiers")
        stack = AsyncExitStack()
        self.loop.run(stack.enter_async_context(env.serving()))
        self.loop.at_end(stack.aclose)

    @property
    def alive(self) -> bool:
        """Whether its loop runs."""
        return self.loop.alive

    def play(self, task: Any, timeout: float) -> Exchange[Any]:
        """Start an episode of a task; its result is verifiers' `Episode`."""
        env = self.env

        async def episode(exchange: Exchange[Any]) -> Any:
            ANSWERING.set(exchange)
            return await env.run_episode(task, _CONTEXT)

        return Exchange(self.loop, episode, timeout=timeout)

    def close(self) -> None:
        """End all episodes, and what verifiers serves for them."""
        self.loop.close()
