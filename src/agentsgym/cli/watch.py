"""What `agentsgym play --agent` does: an agent plays, and one sees what it saw and said."""

from typing import TYPE_CHECKING

from agentsgym.cli.console import out, quiet_libraries, shown
from agentsgym.cli.engine_options import tell
from agentsgym.cli.one_task import task_of

if TYPE_CHECKING:
    from agentsgym.generation.settings import EngineSettings
    from agentsgym.runs import RunConfig
    from agentsgym.types import Rollout


def watch(run: "RunConfig", task: int, seed: int, engine: "EngineSettings") -> "Rollout":
    """Let the agent play an evaluation task, and show the conversation."""
    quiet_libraries()
    from agentsgym.rollout.drive import tokenizer_of
    from agentsgym.runs.answerer import answering
    from agentsgym.runs.chat_settings import evaluated_rendering
    from agentsgym.runs.from_config import make_env
    from agentsgym.runs.model_agent import evaluated_agent

    bare = make_env(run)
    task_data = task_of(bare, task)
    with evaluated_agent(run, bare, seed, engine, tell) as agent:
        env = bare.with_tokenizer(tokenizer_of(agent))
        env.set_template_options(evaluated_rendering(run, env.tokenizer, tell))
        with answering(env, tell):
            rollout = env.run_trial([task_data], agent, seed=seed).rollouts[0]
    for episode in rollout.episodes:
        for message in episode.messages:
            style = "bold" if message["role"] == "assistant" else "cyan"
            out.print(shown(message["content"]), style=style)
    return rollout
