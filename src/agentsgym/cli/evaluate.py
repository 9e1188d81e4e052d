"""`agentsgym eval`: measures how good a model or a scripted agent is."""

import math
from pathlib import Path
from typing import Annotated

import typer

from agentsgym.agents.scripted import scripted_agent
from agentsgym.cli.console import BAD_USAGE, fail, out, print_json, print_table, quiet_libraries
from agentsgym.cli.options import SettingsArgument, TrustOption, option_of
from agentsgym.cli.players import Players, play_with, settings_of_play
from agentsgym.cli.suite import evaluate_suite
from agentsgym.cli.tables import comparison_table, evaluation_table, plain_data
from agentsgym.evaluation import Played, compare, default_cluster, passes, smallest_difference
from agentsgym.runs import RunConfig
from agentsgym.runs.evaluate import held_out_requests, other_references
from agentsgym.runs.files.records import write_record
from agentsgym.runs.from_config import make_env
from agentsgym.runs.settings import SCRIPTED
from agentsgym.runs.trust import check_links
from agentsgym.types import RolloutRequest


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A model directory or hub name, a run directory, builtin:NAME, chat:NAME (a model "
            "at engine.urls), or agent:optimal, agent:teacher, agent:random, agent:never.",
        ),
    ],
    settings: SettingsArgument = None,
    env: Annotated[
        str | None,
        typer.Option("--env", "-e", help="Environment (a run, as MODEL or OTHER, knows its own)."),
    ] = None,
    rollouts: Annotated[int | None, option_of("eval.rollouts")] = None,
    rollouts_per_task: Annotated[int | None, option_of("eval.rollouts_per_task")] = None,
    vs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OTHER",
            help="Compare with this model, on the same tasks. With --suite it may be given "
            "several times.",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="SUITE",
            help="Play a list of tasks in several games: explore, or a YAML file.",
        ),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Of a suite only so many tasks of each game.")
    ] = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Play nothing; print which difference could be shown."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Write every rollout and the figures here; the same command continues an "
            "interrupted evaluation.",
        ),
    ] = None,
    temperature: Annotated[float | None, option_of("eval.temperature")] = None,
    max_action_tokens: Annotated[
        int | None, typer.Option(min=1, help="Token cap of one action [64; of chat:NAME 512].")
    ] = None,
    seed: Annotated[int | None, option_of("eval.seed")] = None,
    threads: Annotated[int | None, option_of("threads")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    trust: TrustOption = False,
) -> None:
    """Evaluate a model or a scripted agent on an environment's held-out tasks.

    Equal seeds give equal tasks and equal noise, so that two models can be compared. Intervals are
    95 %, over clusters of tasks with the same solution. With --vs, the difference of two models is
    shown if its interval does not contain zero.

    Examples:

        agentsgym eval runs/quickstart

        agentsgym eval HuggingFaceTB/SmolLM2-135M-Instruct --env TwentyQuestions --rollouts 64

        agentsgym eval agent:optimal --env TwentyQuestions env_config.hints=2 --json

        agentsgym eval runs/quickstart --vs agent:optimal --output evals/quickstart

        agentsgym eval HuggingFaceTB/SmolLM2-135M-Instruct --suite explore

        agentsgym eval runs/a --vs runs/b --vs agent:random --suite explore

        agentsgym eval chat:gpt-5-mini --env Mastermind
        engine.urls=https://api.openai.com/v1 engine.key_env=OPENAI_API_KEY
    """
    models = (model, *(vs or ()))
    options = {
        "eval.rollouts": rollouts,
        "eval.rollouts_per_task": rollouts_per_task,
        "eval.temperature": temperature,
        "eval.seed": seed,
        "train.max_action_tokens": max_action_tokens,
        "threads": threads,
    }
    players = Players(models, settings_of_play(models, settings, options), trust)
    if output is not None and output.exists() and not trust:
        check_links(output)
    if plan and output is not None:
        raise fail("--plan plays nothing that --output could keep", BAD_USAGE)
    if suite is not None:
        if plan or env is not None:
            raise fail("--suite has its own environments; leave out --env, --plan", BAD_USAGE)
        evaluate_suite(suite, players, tasks, output, as_json=as_json)
        return
    if tasks is not None:
        raise fail("--tasks belongs to --suite; set --rollouts", BAD_USAGE)
    if len(models) > 2:
        raise fail("several models are compared on a --suite; give --vs once", BAD_USAGE)
    run = players.first(env)
    quiet_libraries()

    requests = held_out_requests(run)
    if plan:
        _plan(run, requests, as_json=as_json)
    elif vs:
        _compare(run, requests, players, output, as_json=as_json)
    else:
        _one(model, run, requests, output, as_json=as_json)


def _one(
    model: str,
    run: RunConfig,
    requests: list[RolloutRequest],
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    played = play_with(model, run, run, requests, output)
    of_passes = passes(played.rollouts)
    counted = [one for one, r in zip(requests, played.rollouts, strict=True) if not r.failed]
    references = other_references(make_env(run), counted)
    if as_json:
        data = plain_data(played.evaluation) | {"passes": [plain_data(one) for one in of_passes]}
        print_json(data | {"other_references": references})
    else:
        print_table(evaluation_table(model, run.env, played.evaluation, of_passes, references))
    _refuse_if_all_failed(played)


def _compare(
    run: RunConfig,
    requests: list[RolloutRequest],
    players: Players,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    model, other = players.models
    ours, theirs = (None, None) if output is None else (output / "model", output / "vs")
    # What is wrong with the second one is told before the first one plays.
    rival = players.other(other, run)
    if other.startswith(SCRIPTED):
        scripted_agent(make_env(run), other.removeprefix(SCRIPTED))
    first = play_with(model, run, run, requests, ours)
    second = play_with(other, rival, run, requests, theirs)
    for played in (first, second):
        _refuse_if_all_failed(played)
    result = compare(first.rollouts, second.rollouts)
    data = {
        "model": model,
        "vs": other,
        "comparison": plain_data(result),
        "evaluations": [plain_data(played.evaluation) for played in (first, second)],
    }
    if output is not None:
        write_record(output / "comparison.json", data)
    if as_json:
        print_json(data)
    else:
        title = f"{model} against {other} on {run.env}"
        print_table(comparison_table(model, other, result, title))


def _refuse_if_all_failed(played: Played) -> None:
    if played.evaluation.failures == played.evaluation.rollouts:
        reason = str(played.rollouts[0].error).strip().splitlines()[-1]
        raise fail(f"every rollout failed; the first: {reason}")


_POWER = 0.8


def _plan(run: RunConfig, requests: list[RolloutRequest], *, as_json: bool) -> None:
    """Print what a comparison on these rollouts can show."""
    low, high = make_env(run).reward_range
    pairs = len(requests)
    clusters = len({default_cluster(request.task_data) for request in requests})
    smallest = smallest_difference(pairs, clusters, _POWER)
    alike = smallest_difference(clusters, clusters, _POWER)
    of_rewards = smallest * (high - low) if math.isfinite(high - low) else None
    if as_json:
        data = {
            "pairs": pairs,
            "clusters": clusters,
            "power": _POWER,
            "smallest_win_rate_difference": smallest,
            "smallest_reward_difference": of_rewards,
            "smallest_if_clusters_are_alike": alike,
        }
        print_json(plain_data(data))
        return
    out.print(f"{pairs} rollouts in {clusters} clusters of tasks, the same for both sides.")
    rewards = "" if of_rewards is None else f", a difference of rewards of {of_rewards:.3f}"
    if alike != smallest:
        rewards += f"; if all rollouts of a cluster differ alike, of {_points(alike)}"
    out.print(
        f"Shown with probability {_POWER:.0%}: a difference of win rates of {_points(smallest)}"
        f"{rewards}."
    )
    out.print("This is for sides that each win half and play independently: the worst case.")


def _points(value: float) -> str:
    return f"{100 * value:.1f} points" if value < 10 else "no size"
