"""`agentsgym eval`: measures how good a model or a scripted agent is."""

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsgym.cli.console import FAILURE, fail, out, quiet_libraries
from agentsgym.cli.engine_options import (
    BaseUrlOption,
    EngineOption,
    KeyEnvOption,
    ServedModelOption,
    engine_settings,
    purpose,
    tell,
)
from agentsgym.cli.evaluated_run import evaluated_run
from agentsgym.cli.options import ConfigOption, SettingsArgument, given_settings
from agentsgym.cli.permissions import AllowImportsOption, AllowPathsOption, allowed_by

if TYPE_CHECKING:
    from agentsgym.evaluation import Evaluation, Played
    from agentsgym.generation.settings import EngineSettings
    from agentsgym.runs import RunConfig


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A model directory or hub name, a run directory, builtin:NAME, the http:// "
            "address of a server, chat:NAME (a model at --base-url), or agent:optimal, "
            "agent:teacher, agent:random.",
        ),
    ],
    settings: SettingsArgument = None,
    env: Annotated[
        str | None, typer.Option("--env", "-e", help="Environment (a run directory knows its own).")
    ] = None,
    config: ConfigOption = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Rollouts to play [256].")] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Sampling temperature, 0 is greedy [1.0].")
    ] = None,
    max_action_tokens: Annotated[
        int | None, typer.Option(min=1, help="Token cap of one action [64; of chat:NAME 512].")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the tasks and the sampling noise.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of torch threads.")] = None,
    base_url: BaseUrlOption = None,
    served_model: ServedModelOption = None,
    key_env: KeyEnvOption = None,
    engine: EngineOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    allow_imports: AllowImportsOption = None,
    allow_paths: AllowPathsOption = None,
) -> None:
    """Evaluate a model or a scripted agent on an environment's held-out tasks.

    Equal seeds give equal tasks and equal noise, so that two models can be compared. Intervals are
    95 %, over clusters of tasks with the same solution.

    Examples:

        agentsgym eval runs/quickstart

        agentsgym eval HuggingFaceTB/SmolLM2-135M-Instruct --env TwentyQuestions --episodes 64

        agentsgym eval agent:optimal --env TwentyQuestions hints=2 --json

        agentsgym eval http://localhost:8000 --env TwentyQuestions

        agentsgym eval chat:gpt-5-mini --env Mastermind --base-url https://api.openai.com/v1
        --key-env OPENAI_API_KEY
    """
    given = given_settings(settings, config)
    run = evaluated_run(model, env, given, allowed_by(allow_imports, allow_paths))
    run.eval.episodes = run.eval.episodes if episodes is None else episodes
    run.eval.temperature = run.eval.temperature if temperature is None else temperature
    if max_action_tokens is not None:
        run.train["max_action_tokens"] = max_action_tokens
    run.threads = threads or run.threads
    chosen = engine_settings(run, model, engine, base_url, served_model, key_env)
    played = _evaluate(run, seed, chosen)
    result = played.evaluation
    if as_json:
        typer.echo(json.dumps(_plain(result), indent=2, allow_nan=False))
    else:
        from agentsgym.cli.tables import evaluation_table

        out.print(evaluation_table(model, run.env, result))
    if result.failures == result.episodes:
        reason = str(played.rollouts[0].error).strip().splitlines()[-1]
        raise fail(f"every rollout failed; the first: {reason}", FAILURE)


def _evaluate(run: "RunConfig", seed: int, engine: "EngineSettings") -> "Played":
    quiet_libraries()
    from agentsgym.envs import ConfigError, EnvPool
    from agentsgym.evaluation import evaluate as evaluate_agent
    from agentsgym.rollout.drive import tokenizer_of
    from agentsgym.runs.chat_settings import evaluated_rendering
    from agentsgym.runs.from_config import make_env
    from agentsgym.runs.model_agent import evaluated_agent
    from agentsgym.runs.trust import trusted_imports

    bare = make_env(run)
    try:
        rows = list(bare.get_eval_dataset())
    except NotImplementedError as error:
        raise ConfigError(str(error)) from None
    with evaluated_agent(run, bare, seed, engine, purpose(), tell) as agent:
        tokenizer = tokenizer_of(agent)
        return evaluate_agent(
            rows,
            agent,
            episodes=run.eval.episodes,
            rollouts_per_task=run.eval.rollouts_per_task,
            seed=seed,
            envs=EnvPool(
                tokenizer,
                trusted_imports(run),
                allow_paths=run.train.get("allow_paths") or (),
                template_options=evaluated_rendering(run, tokenizer, tell),
            ),
            max_rollout_tokens=run.train.get("max_rollout_tokens"),
        )


def _plain(result: "Evaluation") -> dict[str, Any]:
    from agentsgym.types.plain import plain

    found: dict[str, Any] = plain(dataclasses.asdict(result))
    return found
