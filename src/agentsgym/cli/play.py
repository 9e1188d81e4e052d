"""`agentsgym play`: a person plays at the terminal, or watches an agent."""

from typing import Annotated, Any

import typer

from agentsgym.agents import HumanAgent
from agentsgym.cli.console import BAD_USAGE, INTERRUPTED, fail, out, quiet_libraries, shown, tell
from agentsgym.cli.options import (
    NameArgument,
    SettingsArgument,
    TrustOption,
    env_config_of,
    option_of,
)
from agentsgym.cli.players import evaluated_run, settings_of_play
from agentsgym.envs import MultistepEnv, make
from agentsgym.evaluation import rollout_requests
from agentsgym.runs import RunConfig
from agentsgym.runs.from_config import make_env, run_tasks
from agentsgym.runs.players import contestant
from agentsgym.runs.settings import DataSettings
from agentsgym.types import Rollout, with_modules_of
from agentsgym.types.names import import_from_here


def play(
    name: NameArgument,
    settings: SettingsArgument = None,
    task: Annotated[
        int, typer.Option(min=0, help="Number of the evaluation task to play, from 0.")
    ] = 0,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="MODEL",
            help="Watch an agent instead: what `agentsgym eval` takes as MODEL.",
        ),
    ] = None,
    temperature: Annotated[float | None, option_of("eval.temperature")] = None,
    seed: Annotated[int | None, option_of("eval.seed")] = None,
    trust: TrustOption = False,
) -> None:
    """Play an environment yourself, or watch an agent.

    You see the agent's prompts and type its actions. Ctrl-C or Ctrl-D ends the game. With --agent
    you see the prompts and the actions of an agent.

    Examples:

        agentsgym play TwentyQuestions

        agentsgym play TwentyQuestions env_config.hints=3 --task 7

        agentsgym play my_module.MyEnv

        agentsgym play Mastermind --agent agent:optimal
    """
    import_from_here(name)
    if agent is not None:
        options = {"eval.temperature": temperature, "eval.seed": seed}
        given = settings_of_play([agent], settings, options)
        run = evaluated_run(agent, name, given, trust=trust)
        _show_result(_watch(run, task), "The agent")
        return
    if trust or (temperature, seed) != (None, None):
        raise fail("--temperature, --seed and --trust are of --agent MODEL", BAD_USAGE)
    env = make(name, None, env_config_of(settings), trust=with_modules_of(False, name))
    try:
        rollout = _play(env, _task_of(env, task)["task_data"])
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
        raise fail(f"the game failed: {rollout.error.strip().splitlines()[-1]}")
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
        raise fail(f"--task {number}: {env.name} has the tasks 0 to {len(tasks) - 1}", BAD_USAGE)
    return dict(tasks[number])


def _watch(run: RunConfig, task: int) -> Rollout:
    """Let the agent play an evaluation task, and show the conversation."""
    quiet_libraries()

    seed = run.eval.seed
    request = rollout_requests([_task_of(make_env(run), task)], 1, seed=seed)
    with contestant(run.model.path, run, seed=seed, note=tell) as player:
        (rollout,) = player.play(run, request, seed=seed).rollouts
    for episode in rollout.episodes:
        for message in episode.messages:
            style = "bold" if message.role == "assistant" else "cyan"
            out.print(shown(message.content), style=style)
    return rollout
