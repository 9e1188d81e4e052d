"""`agentsgym play`: a person plays at the terminal, or watches an agent."""

from typing import Annotated, Any, Self

import typer
from pydantic import Field, model_validator

from agentsgym.agents import HumanAgent
from agentsgym.cli.command import Argument, Command, Settings, Trust, env_config_of, setting
from agentsgym.cli.console import INTERRUPTED, fail, out, quiet_libraries, reason, shown
from agentsgym.cli.players import Player, evaluated_run, settings_of_play
from agentsgym.envs import ConfigError, MultistepEnv, make
from agentsgym.evaluation import rollout_requests
from agentsgym.runs import RunConfig
from agentsgym.runs.from_config import make_env, run_tasks
from agentsgym.runs.settings import DataSettings
from agentsgym.types import Rollout, with_modules_of
from agentsgym.types.names import import_from_here


class Play(Command):
    """Play an environment yourself, or watch an agent.

    You see the agent's prompts and type its actions. Ctrl-C or Ctrl-D ends the game. With --agent
    you see the prompts and the actions of an agent.

    Examples:

        agentsgym play TwentyQuestions

        agentsgym play TwentyQuestions env_config.hints=3 --task 7

        agentsgym play my_module.MyEnv

        agentsgym play Mastermind --agent agent:optimal
    """

    name: Argument[str]
    """A registered environment or the dotted path of a class."""
    settings: Settings
    task: int = Field(0, ge=0)
    """Number of the evaluation task to play, from 0."""
    agent: Annotated[str | None, typer.Option(metavar="MODEL")] = None
    """Watch an agent instead: what `agentsgym eval` takes as MODEL."""
    temperature: float | None = setting("eval.temperature")
    seed: int | None = setting("eval.seed")
    trust: Trust

    @model_validator(mode="after")
    def _of_an_agent(self) -> Self:
        if self.agent is None and (self.trust or self.options()):
            raise ConfigError("--temperature, --seed and --trust are of --agent MODEL")
        return self

    def __call__(self) -> None:
        import_from_here(self.name)
        if self.agent is not None:
            given = settings_of_play([self.agent], self.settings, self.options())
            run = evaluated_run(self.agent, self.name, given, trust=self.trust)
            _show_result(_watch(run, self.task), "The agent")
            return
        trust = with_modules_of(False, self.name)
        env = make(self.name, None, env_config_of(self.settings), trust=trust)
        try:
            rollout = _play(env, _task_of(env, self.task)["task_data"])
        except KeyboardInterrupt:
            out.print("\nThe game is over; nothing was saved.")
            raise typer.Exit(INTERRUPTED) from None
        _show_result(rollout, "You")


def _play(env: MultistepEnv, task: dict[str, Any]) -> Rollout:
    agent = HumanAgent(show=lambda text: out.print(shown(text), style="cyan"), ask=_ask)
    return env.run_trial([task], agent).rollouts[0]


def _ask() -> str:
    try:
        return input("> ")
    except EOFError:
        raise KeyboardInterrupt from None  # an EOFError would count as an error of the session


def _show_result(rollout: Rollout, who: str) -> None:
    if rollout.error is not None:
        raise fail(f"the game failed: {reason(rollout.error)}")
    last = rollout.episodes[-1]
    verdict = {
        True: f"[bold green]{who} won[/]",
        False: f"[bold]{who} lost[/]",
        None: "The game is over",
    }
    actions = sum(len(episode.actions) for episode in rollout.episodes)
    out.print(
        f"\n{verdict[last.win]} after {actions} actions "
        f"({shown(last.stop_reason)}); reward {rollout.final_reward:g}."
    )
    task = {key: value for key, value in rollout.task_data.items() if key != "seed"}
    if task:
        text = ", ".join(f"{key} = {value}" for key, value in task.items())
        out.print(f"The task was: {shown(text)}")


def _task_of(env: MultistepEnv, number: int) -> dict[str, Any]:
    """The row of an evaluation task by its number, from 0."""
    tasks = run_tasks(env, DataSettings(), "eval")
    if number >= len(tasks):
        raise ConfigError(f"--task {number}: {env.name} has the tasks 0 to {len(tasks) - 1}")
    return dict(tasks[number])


def _watch(run: RunConfig, task: int) -> Rollout:
    """Let the agent play an evaluation task, and show the conversation."""
    quiet_libraries()
    requests = rollout_requests([_task_of(make_env(run), task)], 1, seed=run.eval.seed)
    (rollout,) = Player(run.model.path, run).play(run, requests).rollouts
    for episode in rollout.episodes:
        for message in episode.messages:
            style = "bold" if message.role == "assistant" else "cyan"
            out.print(shown(message.content), style=style)
    return rollout
