"""Who plays in `agentsgym eval` and `play --agent`: a model of the command line, as a run with its
engine, its environment and how it samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentsgym.cli.console import BAD_USAGE, err, fail, tell
from agentsgym.cli.options import split_settings
from agentsgym.evaluation import Played
from agentsgym.runs import RunConfig, load_run, merge, parse_config
from agentsgym.runs.evaluate import contestant
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.settings import CHAT, SCRIPTED
from agentsgym.runs.trust import check_stored, foreign_code, import_stored, with_trust
from agentsgym.types import RolloutRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayOptions:
    """The models of the command line and how they play: `settings` of a run by their dotted keys,
    and those of the `engine`;
    of a suite the first `tasks` of each game."""

    models: tuple[str, ...]
    output: Path | None
    trust: bool
    settings: dict[str, Any]
    engine: dict[str, Any]
    tasks: int | None = None

    def first(self, env: str | None, given: dict[str, Any]) -> RunConfig:
        """The run of MODEL. Raises ConfigError."""
        model, beside = self.models[0], next(iter(self.models[1:]), None)
        given = given | self._engine_of(model)
        return evaluated_run(model, env, given, self.settings, trust=self.trust, beside=beside)

    def other(self, name: str, first: RunConfig) -> RunConfig:
        """The run of a model of --vs in the environment of the first one: it samples as
        that one, where its own run does not say it. Raises ConfigError."""
        run = evaluated_run(name, first.env, self._engine_of(name), self.settings, trust=self.trust)
        return run.model_copy(update={"eval": first.eval})

    def _engine_of(self, name: str) -> dict[str, Any]:
        """The settings of an engine belong to the models chat:NAME, or else to the first that is no
        scripted agent."""
        chats = [one for one in self.models if one.startswith(CHAT)]
        models = [one for one in self.models if not one.startswith(SCRIPTED)]
        return self.engine if name in (chats or models[:1] or self.models[:1]) else {}


def check_effect(agents: Sequence[str], how: Mapping[str, Any]) -> None:
    """Exit with an error for settings of sampling where no agent samples."""
    of_sampling = {"eval.temperature", "train.max_action_tokens"} & how.keys()
    if of_sampling and all(agent.startswith(SCRIPTED) for agent in agents):
        raise fail(f"{', '.join(sorted(of_sampling))}: no model samples here", BAD_USAGE)


def evaluated_run(
    agent: str,
    env: str | None,
    given: dict[str, Any],
    how: Mapping[str, Any] = MappingProxyType({}),
    *,
    trust: bool = False,
    beside: str | None = None,
) -> RunConfig:
    """The agent and the environment of an evaluation, with the user's `KEY=VALUE` settings `given`,
    and `how` it plays: settings of a run by their dotted keys.

    A run directory provides its model and its settings, those of the environment if `env` is None
    or the run's own. An agent without an environment gets that of the run `beside` it, and the
    run's section `eval`. What a run directory names outside of itself needs `trust`, or to be
    named here too. Raises ConfigError.
    """
    import_stored([env or ""], Path(agent), Path(beside or agent))
    settings, sections = split_settings(given)
    if _is_run(agent):
        run = _of_directory(Path(agent), env, settings, sections, how, trust)
    else:
        place: dict[str, Any] = {"env": env, "env_config": merge({}, settings)}
        if env is None:
            place = _place_of(beside, settings, trust)
        model = {"path": agent, **sections.get("model", {})}
        run = parse_config(merge({**place, "name": "eval", **sections, "model": model}, how))
    run = with_trust(run) if trust else run
    return _with_names(run)


def play_with(
    name: str,
    run: RunConfig,
    place: RunConfig,
    requests: Sequence[RolloutRequest],
    output: Path | None,
) -> Played:
    """The model of `run` plays these in the environment of `place`."""
    with contestant(name, run, seed=run.eval.seed, note=tell) as player:
        return player.play(place, requests, seed=run.eval.seed, output=output)


def model_in(run: RunDirectory) -> Path:
    """The trained model of a run, or its newest checkpoint if training is not finished."""
    if run.model.is_dir():
        return run.model
    checkpoint = run.last_checkpoint()
    if checkpoint is None:
        raise fail(f"{run.root} contains neither a model nor a checkpoint yet", BAD_USAGE)
    return checkpoint[1]


def _is_run(agent: str) -> bool:
    return not agent.startswith((SCRIPTED, CHAT)) and RunDirectory(Path(agent)).is_run()


def _place_of(run: str | None, settings: dict[str, Any], trust: bool) -> dict[str, Any]:
    """The environment of a run, with the user's settings of it, and how the run evaluates."""
    if run is None or not _is_run(run):
        raise fail("name the environment with --env (see agentsgym envs)", BAD_USAGE)
    stored = _stored(Path(run), {}, settings, trust)
    return stored.model_dump(include={"env", "env_config", "eval", "data"})


def _of_directory(
    root: Path,
    env: str | None,
    settings: dict[str, Any],
    sections: dict[str, Any],
    how: Mapping[str, Any],
    trust: bool,
) -> RunConfig:
    place: dict[str, Any] = dict(how) if env is None else {**how, "env": env}
    if env is not None and env != load_run(root).env:
        place |= {"env_config": {}, "data": {}}
    run = _stored(root, place, settings, trust)
    path = str(model_in(RunDirectory(root)))
    model = {**run.model.at(path).model_dump(), **sections.get("model", {})}
    given = parse_config({"env": run.env, **sections, "model": model})
    if run.engine.reaches_out:  # it was for training
        err.print(
            "The servers that the run names are not used: name them yourself with engine.urls=URL, "
            "or its model is sampled in this process."
        )
    engine = given.engine.model_copy(
        update={"capacity": given.engine.capacity or run.engine.capacity}
    )
    if not (engine.reaches_out or run.engine.reaches_out):
        engine = engine.model_copy(update={"name": engine.name or run.engine.name})
    return run.model_copy(update={"model": given.model, "engine": engine})


def _stored(root: Path, place: dict[str, Any], settings: dict[str, Any], trust: bool) -> RunConfig:
    """The configuration of a run directory with the user's settings. Raises ConfigError if it names
    something outside of it, without `trust`."""
    overrides = place | {f"env_config.{key}": value for key, value in settings.items()}
    run = load_run(root, overrides)
    import_stored(foreign_code(run), root)
    if not trust:
        check_stored(run, overrides, training=False)
    return run


def _with_names(run: RunConfig) -> RunConfig:
    """The run with the engine that MODEL means, and the model's name at it."""
    engine, path = run.engine, run.model.path
    name = engine.name or ("chat" if path.startswith(CHAT) else None)
    served = engine.served_model
    if name == "chat" or engine.urls:
        served = served or path.removeprefix(CHAT) or None
    chosen = engine.model_copy(update={"name": name, "served_model": served})
    return run.model_copy(update={"engine": chosen})
