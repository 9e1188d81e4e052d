"""The environment and the task that `agentsgym play` is about."""

from typing import TYPE_CHECKING, Any

from agentsgym.cli.console import BAD_USAGE, fail
from agentsgym.types import with_modules_of

if TYPE_CHECKING:
    from agentsgym.envs import MultistepEnv


def make_env(name: str, settings: dict[str, Any], answerer: dict[str, Any]) -> "MultistepEnv":
    """The environment that the user names, with the section `answerer` of a run."""
    from agentsgym.envs import make
    from agentsgym.generation.settings import ChatEndpoint
    from agentsgym.runs.answerer import attach_answerer
    from agentsgym.types.settings import read

    env = make(name, None, settings, trust=with_modules_of(False, name))
    if answerer:
        attach_answerer(env, read(ChatEndpoint, answerer, "answerer."))
    return env


def task_of(env: "MultistepEnv", number: int) -> dict[str, Any]:
    """The data of an evaluation task by its number, from 0."""
    try:
        tasks = env.get_eval_dataset()
    except NotImplementedError as error:
        raise fail(str(error), BAD_USAGE) from None
    if number >= len(tasks):
        raise fail(f"--task {number}: {env.name} has the tasks 0 to {len(tasks) - 1}", BAD_USAGE)
    return dict(tasks[number]["task_data"])
