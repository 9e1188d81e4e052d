"""What `agentsgym play --agent` does: an agent plays, and one sees what it saw and said."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.cli.console import out, quiet_libraries, shown
from agentsgym.cli.engine_options import CHAT, SCRIPTED, purpose
from agentsgym.cli.one_task import make_env, task_of

if TYPE_CHECKING:
    from agentsgym.generation.settings import EngineSettings
    from agentsgym.runs import RunConfig
    from agentsgym.types import Rollout


def run_of(name: str, agent: str, settings: dict[str, Any], temperature: float) -> "RunConfig":
    """The environment, the agent and its temperature as `agentsgym eval` has them."""
    from agentsgym.runs import parse_config
    from agentsgym.runs.files import RunDirectory

    if not agent.startswith((CHAT, SCRIPTED)) and RunDirectory(Path(agent)).is_run():
        agent = str(RunDirectory(Path(agent)).model)
    data = {"env": name, "model": agent, "env_config": settings, "name": "play"}
    return parse_config({**data, "eval": {"temperature": temperature}})


def watch(
    run: "RunConfig", settings: dict[str, Any], task: int, seed: int, engine: "EngineSettings"
) -> "Rollout":
    """Let the agent play an evaluation task, and show the conversation."""
    quiet_libraries()
    from agentsgym.rollout.drive import tokenizer_of
    from agentsgym.runs.model_agent import evaluated_agent

    bare = make_env(run.env, settings)
    task_data = task_of(bare, task)
    with evaluated_agent(run, bare, seed, engine, purpose()) as agent:
        env = make_env(run.env, settings, tokenizer_of(agent))
        rollout = env.run_trial([task_data], agent, seed=seed).rollouts[0]
    for episode in rollout.episodes:
        for message in episode.messages:
            style = "bold" if message["role"] == "assistant" else "cyan"
            out.print(shown(message["content"]), style=style)
    return rollout
