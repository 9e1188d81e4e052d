"""What `agentsgym eval` does with its options: plays one model, or two on the same tasks."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.cli.console import FAILURE, fail
from agentsgym.cli.engine_options import CHAT, SCRIPTED, engine_settings, purpose, tell
from agentsgym.cli.evaluated_run import evaluated_run

if TYPE_CHECKING:
    from agentsgym.evaluation import Played
    from agentsgym.runs import RunConfig
    from agentsgym.runs.contestant import Contestant
    from agentsgym.types import RolloutRequest


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

    def apply(self, run: "RunConfig") -> "RunConfig":
        """The run with these options."""
        given = {
            "episodes": self.episodes,
            "rollouts_per_task": self.rollouts_per_task,
            "temperature": self.temperature,
        }
        for key, value in given.items():
            if value is not None:
                setattr(run.eval, key, value)
        if self.max_action_tokens is not None:
            run.train["max_action_tokens"] = self.max_action_tokens
        run.threads = self.threads or run.threads
        return run

    def load(
        self, name: str, run: "RunConfig", *, other: bool = False
    ) -> AbstractContextManager["Contestant"]:
        """MODEL, or the `other` model of --vs. The options of an endpoint are MODEL's, and of an
        other one chat:NAME too; if MODEL is a scripted agent, only that one's."""
        from agentsgym.generation.endpoint import is_url
        from agentsgym.runs.contestant import contestant

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
        return contestant(name, run, chosen, seed=self.seed, purpose=purpose(), note=tell)


OtherSide = Callable[[], "Played"]
"""Gives the second side of a comparison."""


def other_side(
    other: str,
    run: "RunConfig",
    asked: "list[RolloutRequest]",
    options: PlayOptions,
    output: Path | None,
) -> OtherSide:
    """The side of --vs: a saved evaluation, or a model that plays when it is called.

    Raises ConfigError, so that what is wrong with it is told before anything is played.
    """
    from agentsgym.runs.saved_side import is_saved

    if other.startswith((SCRIPTED, CHAT)) or not is_saved(other):
        second = other_run(other, run, options)
        return lambda: _play_other(other, second, run, asked, options, output)
    return _saved_side(Path(other), run, asked, options, output)


def _saved_side(
    root: Path,
    run: "RunConfig",
    asked: "list[RolloutRequest]",
    options: PlayOptions,
    output: Path | None,
) -> OtherSide:
    from agentsgym.runs.saved_side import saved_side

    side = saved_side(root, run, asked, seed=options.seed, trust=options.trust)
    if output is not None:
        side.check_copy(output)
    ours = None if options.model.startswith(SCRIPTED) else run.eval.temperature
    if side.temperature not in (None, ours) and ours is not None:
        tell(f"{root} was sampled at temperature {side.temperature:g}, {options.model} at {ours:g}")

    def copied() -> "Played":
        if output is not None:
            side.copy_to(output)
        return side.played

    return copied


def play_one(
    name: str,
    run: "RunConfig",
    asked: "list[RolloutRequest]",
    options: PlayOptions,
    output: Path | None,
) -> "Played":
    """The model plays the tasks."""
    with options.load(name, run) as player:
        return player.play(run, asked, seed=options.seed, output=output)


def other_run(other: str, run: "RunConfig", options: PlayOptions) -> "RunConfig":
    """The run of the model `other`, at the temperature of `run`.

    Raises ConfigError, so that a wrong name is told before anything is played.
    """
    from agentsgym.runs.from_config import make_env
    from agentsgym.runs.scripted_agents import scripted_agent

    same = {f"answerer.{key}": value for key, value in run.answerer.items()}
    second = evaluated_run(other, run.env, same, trust=options.trust)
    if other.startswith(SCRIPTED):
        scripted_agent(make_env(run), other.removeprefix(SCRIPTED))
    second.eval = run.eval
    return options.apply(second)


def _play_other(
    other: str,
    second: "RunConfig",
    run: "RunConfig",
    asked: "list[RolloutRequest]",
    options: PlayOptions,
    output: Path | None,
) -> "Played":
    """The model `other` of the run `second` plays the same tasks in the environment of `run`."""
    with options.load(other, second, other=True) as player:
        return player.play(run, asked, seed=options.seed, output=output)


def refuse_if_all_failed(played: "Played") -> None:
    """Exit with an error if no rollout could be played."""
    if played.evaluation.failures == played.evaluation.episodes:
        reason = str(played.rollouts[0].error).strip().splitlines()[-1]
        raise fail(f"every rollout failed; the first: {reason}", FAILURE)


def plain_data(result: Any) -> dict[str, Any]:
    """A record of figures as plain data, for JSON."""
    from pydantic_core import to_jsonable_python

    from agentsgym.types.text import plain

    data: dict[str, Any] = plain(to_jsonable_python(result))
    return data
