"""`agentsgym eval`: measures how good a model or a scripted agent is."""

import math
from pathlib import Path
from typing import Annotated, Self

import typer
from pydantic import Field, model_validator

from agentsgym.agents.scripted import scripted_agent
from agentsgym.cli.command import Argument, AsJson, Command, Settings, Several, Trust, setting
from agentsgym.cli.console import out, print_json, print_table, quiet_libraries
from agentsgym.cli.players import Player, players, refuse_if_all_failed, settings_of_play
from agentsgym.cli.suite import checked_suite, evaluate_suite
from agentsgym.cli.tables import comparison_table, evaluation_table, plain_data
from agentsgym.envs import ConfigError
from agentsgym.evaluation import compare, default_cluster, passes, smallest_difference
from agentsgym.runs import RunConfig
from agentsgym.runs.evaluate import held_out_requests, other_references
from agentsgym.runs.files.records import write_record
from agentsgym.runs.from_config import make_env
from agentsgym.runs.settings import SCRIPTED
from agentsgym.runs.trust import check_links
from agentsgym.types import RolloutRequest


class Eval(Command):
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

    model: Argument[str]
    """A model directory or hub name, a run directory, builtin:NAME, chat:NAME (a model at
    engine.urls), or agent:optimal, agent:teacher, agent:random, agent:never."""
    settings: Settings
    env: Annotated[str | None, typer.Option("--env", "-e")] = None
    """Environment (a run, as MODEL or OTHER, knows its own)."""
    rollouts: int | None = setting("eval.rollouts")
    rollouts_per_task: int | None = setting("eval.rollouts_per_task")
    vs: Annotated[Several, typer.Option(metavar="OTHER")]
    """Compare with this model, on the same tasks. With --suite it may be given several times."""
    suite: Annotated[str | None, typer.Option(metavar="SUITE")] = None
    """Play a list of tasks in several games: explore, or a YAML file."""
    tasks: int | None = Field(None, ge=1)
    """Of a suite only so many tasks of each game."""
    plan: bool = False
    """Play nothing; print which difference could be shown."""
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR")] = None
    """Write every rollout and the figures here; the same command continues an interrupted
    evaluation."""
    temperature: float | None = setting("eval.temperature")
    max_action_tokens: int | None = setting("train.max_action_tokens")
    seed: int | None = setting("eval.seed")
    threads: int | None = setting("threads")
    as_json: AsJson
    trust: Trust

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.plan and self.output is not None:
            raise ConfigError("--plan plays nothing that --output could keep")
        if self.suite is not None and (self.plan or self.env is not None):
            raise ConfigError("--suite has its own environments; leave out --env, --plan")
        if self.suite is None and self.tasks is not None:
            raise ConfigError("--tasks belongs to --suite; set --rollouts")
        if self.suite is None and len(self.vs) > 1:
            raise ConfigError("several models are compared on a --suite; give --vs once")
        return self

    def __call__(self) -> None:
        models = (self.model, *self.vs)
        given = settings_of_play(models, self.settings, self.options())
        if self.output is not None and self.output.exists() and not self.trust:
            check_links(self.output)
        quiet_libraries()
        if self.suite is not None:
            suite = checked_suite(self.suite, given, self.trust)
            own = players(models, suite.games[0].env, given, trust=self.trust)
            seed = given.get("eval.seed", 0)
            evaluate_suite(suite, own, seed, self.tasks, self.output, as_json=self.as_json)
            return
        player, *others = players(models, self.env, given, trust=self.trust)
        requests = held_out_requests(player.run)
        if self.plan:
            _plan(player.run, requests, as_json=self.as_json)
        elif others:
            self._compare(player, others[0], requests)
        else:
            self._one(player, requests)

    def _one(self, player: Player, requests: list[RolloutRequest]) -> None:
        run = player.run
        played = player.play(run, requests, self.output)
        of_passes = passes(played.rollouts)
        counted = [one for one, r in zip(requests, played.rollouts, strict=True) if not r.failed]
        others = other_references(make_env(run), counted)
        if self.as_json:
            of_k = [plain_data(one) for one in of_passes]
            more = {"passes": of_k, "other_references": others}
            print_json(plain_data(played.evaluation) | more)
        else:
            print_table(evaluation_table(self.model, run.env, played.evaluation, of_passes, others))
        refuse_if_all_failed([played])

    def _compare(self, player: Player, rival: Player, requests: list[RolloutRequest]) -> None:
        run, output = player.run, self.output
        ours, theirs = (None, None) if output is None else (output / "model", output / "vs")
        # What is wrong with the second one is told before the first one plays.
        if rival.name.startswith(SCRIPTED):
            scripted_agent(make_env(run), rival.name.removeprefix(SCRIPTED))
        first, second = player.play(run, requests, ours), rival.play(run, requests, theirs)
        refuse_if_all_failed((first, second))
        result = compare(first.rollouts, second.rollouts)
        data = {
            "model": player.name,
            "vs": rival.name,
            "comparison": plain_data(result),
            "evaluations": [plain_data(played.evaluation) for played in (first, second)],
        }
        if output is not None:
            write_record(output / "comparison.json", data)
        if self.as_json:
            print_json(data)
        else:
            title = f"{player.name} against {rival.name} on {run.env}"
            print_table(comparison_table(player.name, rival.name, result, title))


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
