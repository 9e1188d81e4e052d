"""What `agentsgym eval` does with its options: plays one model, or two on the same tasks."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import typer
from pydantic import TypeAdapter
from rich.box import SIMPLE_HEAD
from rich.table import Table

from agentsgym.cli.console import FAILURE, fail, out, shown
from agentsgym.cli.engine_options import CHAT, SCRIPTED, engine_settings, tell
from agentsgym.cli.evaluated_run import answerer_of, evaluated_run
from agentsgym.evaluation import Played
from agentsgym.generation.endpoint import is_url
from agentsgym.report.suite import FigureTable
from agentsgym.runs import RunConfig
from agentsgym.runs.evaluate import Contestant, contestant
from agentsgym.runs.from_config import make_env
from agentsgym.runs.saved_evaluation import is_saved, saved_side
from agentsgym.runs.scripted_agents import scripted_agent
from agentsgym.types import RolloutRequest
from agentsgym.types.text import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayOptions:
    """The options that say how models play; None is what a run directory says, or the default."""

    model: str
    vs: tuple[str, ...] = ()
    trust: bool = False
    seed: int = 0
    episodes: int | None = None
    rollouts_per_task: int | None = None
    temperature: float | None = None
    max_action_tokens: int | None = None
    threads: int | None = None
    base_url: list[str] | None = None
    served_model: str | None = None
    key_env: str | None = None
    engine: str | None = None

    def apply(self, run: RunConfig) -> RunConfig:
        """The run with these options."""
        for key in ("episodes", "rollouts_per_task", "temperature"):
            if getattr(self, key) is not None:
                setattr(run.eval, key, getattr(self, key))
        if self.max_action_tokens is not None:
            run.train["max_action_tokens"] = self.max_action_tokens
        run.threads = self.threads or run.threads
        return run

    def load(
        self, name: str, run: RunConfig, *, other: bool = False
    ) -> AbstractContextManager[Contestant]:
        """MODEL, or the `other` model of --vs. The options of an endpoint are MODEL's, and of an
        other one chat:NAME too; if MODEL is a scripted agent, only that one's."""

        chat = any(one.startswith(CHAT) for one in self.vs)
        only_other = chat and self.model.startswith(SCRIPTED)
        asked = name.startswith(CHAT) if other else not only_other
        named = only_other if other else not only_other
        chosen = engine_settings(
            run,
            name,
            self.engine if named else None,
            self.base_url if asked else None,
            self.served_model if named else None,
            self.key_env if asked or is_url(name) else None,
        )
        return contestant(name, run, chosen, seed=self.seed, note=tell)

    def other(self, name: str, env: str, run: RunConfig) -> RunConfig:
        """The run of a model of --vs in this environment: it plays as the first one does, where its
        own run does not say it. Raises ConfigError."""
        same = answerer_of(run)
        other = evaluated_run(name, env, same, trust=self.trust)
        other.eval = run.eval
        return self.apply(other)


def play_one(
    name: str,
    own: RunConfig,
    place: RunConfig,
    requests: Sequence[RolloutRequest],
    options: PlayOptions,
    output: Path | None,
    *,
    other: bool = False,
) -> Played:
    """The model of `own` plays these in the environment of `place`."""
    with options.load(name, own, other=other) as player:
        return player.play(place, requests, seed=options.seed, output=output)


Side = tuple[str, Callable[[], "Played"]]
"""What a side of a comparison is called, and what gives its evaluation."""


def other_side(
    name: str,
    run: RunConfig,
    requests: Sequence[RolloutRequest],
    options: PlayOptions,
    output: Path | None,
) -> Side:
    """The side of --vs: a saved evaluation, or a model that plays when it is called.

    Raises ConfigError, so that what is wrong with it is told before anything is played.
    """
    if not name.startswith((SCRIPTED, CHAT)) and is_saved(name):
        return _saved_side(Path(name), run, requests, options, output)
    other = options.other(name, run.env, run)
    if name.startswith(SCRIPTED):
        scripted_agent(make_env(run), name.removeprefix(SCRIPTED))
    return name, lambda: play_one(name, other, run, requests, options, output, other=True)


def _saved_side(
    root: Path,
    run: RunConfig,
    requests: Sequence[RolloutRequest],
    options: PlayOptions,
    output: Path | None,
) -> Side:
    side = saved_side(root, run, requests, seed=options.seed, trust=options.trust)
    if output is not None:
        side.check_copy(output)
    ours = None if options.model.startswith(SCRIPTED) else run.eval.temperature
    if side.temperature not in (None, ours) and ours is not None:
        tell(f"{root} was sampled at temperature {side.temperature:g}, {options.model} at {ours:g}")

    def copied() -> Played:
        if output is not None:
            side.copy_to(output)
        return side.played

    return f"{side.file.model} ({root})", copied


def refuse_if_all_failed(played: Played) -> None:
    """Exit with an error if no rollout could be played."""
    if played.evaluation.failures == played.evaluation.episodes:
        reason = str(played.rollouts[0].error).strip().splitlines()[-1]
        raise fail(f"every rollout failed; the first: {reason}", FAILURE)


def plain_data(result: Any) -> dict[str, Any]:
    """A record of figures as plain data, for JSON."""
    data: dict[str, Any] = plain(TypeAdapter(Any).dump_python(result))
    return data


def print_json(data: Mapping[str, Any]) -> None:
    """Print figures as JSON."""
    typer.echo(json.dumps(data, indent=2, allow_nan=False))


def print_tables(tables: Iterable[FigureTable]) -> None:
    """Print tables of figures."""
    for one in tables:
        table = Table(title=shown(one.title), title_justify="left", box=SIMPLE_HEAD, padding=0)
        for number, head in enumerate(one.heads):
            justify: Literal["left", "right"] = "right" if number else "left"
            table.add_column(shown(head), justify=justify, no_wrap=True)
        for row in one.rows:
            table.add_row(*(shown(str(cell)) for cell in row))
        table.caption, table.caption_justify = shown("\n".join(one.notes)), "left"
        out.print(table)
