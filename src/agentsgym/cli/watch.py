"""What `agentsgym play --agent` does: an agent plays, and one sees what it saw and said."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.cli.console import out, quiet_libraries, shown
from agentsgym.cli.engine_options import CHAT, SCRIPTED, purpose, tell
from agentsgym.cli.one_task import make_env, task_of
from agentsgym.cli.options import model_in, model_with

if TYPE_CHECKING:
    from agentsgym.generation.settings import EngineSettings
    from agentsgym.runs import RunConfig
    from agentsgym.runs.trust import Allowed
    from agentsgym.types import Rollout

_OF_ACTIONS = (
    "max_action_tokens",
    "stop_strings",
    "chat_template",
    "chat_template_kwargs",
    "engine_capacity",
)


def run_of(
    name: str,
    agent: str,
    settings: dict[str, Any],
    temperature: float,
    more: dict[str, Any],
    allowed: "Allowed",
) -> "RunConfig":
    """The environment, the agent and its temperature as `agentsgym eval` has them, with `more`
    sections of a run. A run directory provides its model and the settings of the model's actions.
    """
    from agentsgym.runs import load_run, parse_config
    from agentsgym.runs.files import RunDirectory
    from agentsgym.runs.trust import permitted

    train: dict[str, Any] = {}
    section: dict[str, Any] = {}
    directory = RunDirectory(Path(agent))
    if not agent.startswith((CHAT, SCRIPTED)) and directory.is_run():
        stored = load_run(directory.root, {})
        train = {key: stored.train[key] for key in _OF_ACTIONS if key in stored.train}
        if stored.engine.capacity is not None:
            train["engine_capacity"] = stored.engine.capacity
        agent = str(model_in(directory))
        section = stored.model.at(agent).model_dump()
    data = {"env": name, "env_config": settings, "train": train, "name": "play", **more}
    model = model_with(section, more, agent)
    found = parse_config({**data, "model": model, "eval": {"temperature": temperature}})
    return permitted(found, allowed)


def watch(
    run: "RunConfig", settings: dict[str, Any], task: int, seed: int, engine: "EngineSettings"
) -> "Rollout":
    """Let the agent play an evaluation task, and show the conversation."""
    quiet_libraries()
    from agentsgym.rollout.drive import tokenizer_of
    from agentsgym.runs.chat_settings import rendering
    from agentsgym.runs.model_agent import evaluated_agent

    bare = make_env(run.env, settings)
    task_data = task_of(bare, task)
    with evaluated_agent(run, bare, seed, engine, purpose(), tell) as agent:
        env = make_env(run.env, settings, tokenizer_of(agent))
        env.set_template_options(rendering(run, env.tokenizer))
        rollout = env.run_trial([task_data], agent, seed=seed).rollouts[0]
    for episode in rollout.episodes:
        for message in episode.messages:
            style = "bold" if message["role"] == "assistant" else "cyan"
            out.print(shown(message["content"]), style=style)
    return rollout
