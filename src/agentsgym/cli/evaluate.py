"""`agentsgym eval`: measures how good a model or a scripted agent is."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsgym.cli.console import (
    BAD_USAGE,
    FAILURE,
    err,
    fail,
    out,
    quiet_libraries,
)
from agentsgym.cli.engine_options import (
    CHAT,
    SCRIPTED,
    BaseUrlOption,
    EngineOption,
    KeyEnvOption,
    ServedModelOption,
    engine_settings,
    purpose,
    tell,
)
from agentsgym.cli.options import (
    ConfigOption,
    SettingsArgument,
    given_settings,
    model_in,
    model_with,
    split_settings,
)
from agentsgym.cli.permissions import AllowImportsOption, AllowPathsOption, allowed_by
from agentsgym.envs.user_code import import_from_here

if TYPE_CHECKING:
    from agentsgym.evaluation import Evaluation, Played
    from agentsgym.generation.settings import EngineSettings
    from agentsgym.runs import RunConfig
    from agentsgym.runs.trust import Allowed


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
    run = _run_config(model, env, given, allowed_by(allow_imports, allow_paths))
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


def _run_config(
    model: str, env: str | None, given: dict[str, Any], allowed: "Allowed"
) -> "RunConfig":
    """The model and environment to evaluate; a run directory provides its own configuration."""
    from agentsgym.runs import load_run, parse_config
    from agentsgym.runs.files import RunDirectory
    from agentsgym.runs.trust import distrusted, permitted

    import_from_here(env or "", *allowed.names)
    directory = RunDirectory(Path(model))
    settings, more = split_settings(given)
    overrides = {f"env_config.{key}": value for key, value in settings.items()}
    if not model.startswith((SCRIPTED, CHAT)) and directory.is_run():
        overrides |= {"env": env} if env else {}
        stored = load_run(directory.root, overrides)
        run = distrusted(stored, allowed.and_named_in(overrides), overrides)
        path = str(model_in(directory))
        section = model_with(run.model.at(path).model_dump(), more, path)
        now = parse_config({"env": run.env, "model": section}).model
        return _with_own_engine(run, more).model_copy(update={"model": now})
    if env is None:
        raise fail("name the environment with --env (see agentsgym envs)", BAD_USAGE)
    data = {"env": env, "env_config": settings, "name": "eval", **more}
    data["model"] = model_with({}, more, model)
    return permitted(parse_config(data), allowed)


def _with_own_engine(run: "RunConfig", given: dict[str, Any]) -> "RunConfig":
    """The run with the user's section `engine` instead of its own, because a run directory is not
    trusted: only the user may name servers and commands."""
    from agentsgym.runs.engine_config import engine_of, replaced

    if engine_of(run.engine, run.train).reaches_out:
        err.print(
            "The servers that the run names are not used: name them yourself with --base-url URL, "
            "or its model is sampled in this process."
        )
    engine, train = replaced(run.engine, run.train, given.get("engine"))
    return run.model_copy(update={"engine": engine, "train": train})


def _evaluate(run: "RunConfig", seed: int, engine: "EngineSettings") -> "Played":
    quiet_libraries()
    from agentsgym.envs import ConfigError, EnvPool
    from agentsgym.evaluation import evaluate as evaluate_agent
    from agentsgym.rollout.drive import tokenizer_of
    from agentsgym.runs.chat_settings import rendering
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
                template_options=rendering(run, tokenizer),
            ),
            max_rollout_tokens=run.train.get("max_rollout_tokens"),
        )


def _plain(result: "Evaluation") -> dict[str, Any]:
    from agentsgym.types.plain import plain

    found: dict[str, Any] = plain(dataclasses.asdict(result))
    return found
