"""Who plays in `agentsgym eval` and `play --agent`: a model of the command line, as a run with its
engine, its environment and how it samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.cli.console import BAD_USAGE, err, fail, tell
from agentsgym.cli.options import given_settings
from agentsgym.evaluation import Played
from agentsgym.runs import RunConfig, load_run, merge, parse_config
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.players import contestant
from agentsgym.runs.settings import CHAT, SCRIPTED
from agentsgym.runs.trust import check_stored, foreign_code, import_stored, with_trust
from agentsgym.types import RolloutRequest

_OF_MODEL, _OF_PLACE = ("model", "engine"), ("env_config", "data")
_OF_SAMPLING = ("max_action_tokens", "max_rollout_tokens", "stop_strings", "trust")
_OF_PLAY = (
    *_OF_PLACE,
    *_OF_MODEL,
    "eval",
    "threads",
    *(f"train.{name}" for name in _OF_SAMPLING),
)


def settings_of_play(
    models: Sequence[str], arguments: Sequence[str] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a run by their dotted keys: the `KEY=VALUE` arguments, and the options that
    are not None. Raises ConfigError; exits for settings of sampling where no model samples."""
    given = given_settings(arguments, _OF_PLAY)
    given |= {key: value for key, value in options.items() if value is not None}
    of_sampling = {"eval.temperature", "train.max_action_tokens"} & given.keys()
    if of_sampling and all(model.startswith(SCRIPTED) for model in models):
        raise fail(f"{', '.join(sorted(of_sampling))}: no model samples here", BAD_USAGE)
    return given


@dataclass(frozen=True, slots=True)
class Players:
    """The models of the command line, and the settings that it gives by their dotted keys."""

    models: tuple[str, ...]
    given: dict[str, Any]
    trust: bool

    def first(self, env: str | None) -> RunConfig:
        """The run of MODEL. Raises ConfigError."""
        model, beside = self.models[0], next(iter(self.models[1:]), None)
        given = self._for(model, ("engine",))
        return evaluated_run(model, env, given, trust=self.trust, beside=beside)

    def other(self, name: str, first: RunConfig) -> RunConfig:
        """The run of a model of --vs in the environment of the first one: it samples as
        that one, where its own run does not say it. Raises ConfigError."""
        given = self._for(name, ("engine", "model", *_OF_PLACE))
        run = evaluated_run(name, first.env, given, trust=self.trust)
        return run.model_copy(update={"eval": first.eval})

    def _for(self, name: str, of_others: Sequence[str]) -> dict[str, Any]:
        """The settings of a model: without those that may be others', but with those of the engine
        for the models chat:NAME, or else for the first that is no scripted agent."""
        chats = [one for one in self.models if one.startswith(CHAT)]
        models = [one for one in self.models if not one.startswith(SCRIPTED)]
        with_engine = name in (chats or models[:1] or self.models[:1])
        left_out = [head for head in of_others if head != "engine" or not with_engine]
        return {key: value for key, value in self.given.items() if _head(key) not in left_out}


def evaluated_run(
    agent: str,
    env: str | None,
    given: dict[str, Any],
    *,
    trust: bool = False,
    beside: str | None = None,
) -> RunConfig:
    """The agent and the environment of an evaluation, with the user's settings of a run by their
    dotted keys.

    A run directory provides its model and its settings, those of the environment if `env` is None
    or the run's own. An agent without an environment gets that of the run `beside` it, and the
    run's section `eval`. What a run directory names outside of itself needs `trust`, or to be
    named here too. Raises ConfigError.
    """
    import_stored([env or ""], Path(agent), Path(beside or agent))
    if _is_run(agent):
        run = _of_directory(Path(agent), env, given, trust)
    else:
        place = {"env": env} if env is not None else _place_of(beside, given, trust)
        run = parse_config(merge({**place, "name": "eval", "model": agent}, given))
    return _with_names(with_trust(run) if trust else run)


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


def _place_of(run: str | None, given: dict[str, Any], trust: bool) -> dict[str, Any]:
    """The environment of a run, with the user's settings, and how the run evaluates."""
    if run is None or not _is_run(run):
        raise fail("name the environment with --env (see agentsgym envs)", BAD_USAGE)
    stored = _stored(Path(run), _without_model(given), trust)
    return stored.model_dump(include={"env", "env_config", "eval", "data"})


def _of_directory(root: Path, env: str | None, given: dict[str, Any], trust: bool) -> RunConfig:
    place: dict[str, Any] = {}
    if env is not None and env != load_run(root).env:
        place = {"env": env, "env_config": {}, "data": {}}
    run = _stored(root, place | _without_model(given), trust)
    model = run.model.at(str(model_in(RunDirectory(root))))
    of_model = {key: value for key, value in given.items() if _head(key) in _OF_MODEL}
    chosen = parse_config(merge({"env": run.env, "model": model.model_dump()}, of_model))
    if run.engine.reaches_out:  # it was for training
        err.print(
            "The servers that the run names are not used: name them yourself with engine.urls=URL, "
            "or its model is sampled in this process."
        )
    engine = chosen.engine.model_copy(
        update={"capacity": chosen.engine.capacity or run.engine.capacity}
    )
    if not (engine.reaches_out or run.engine.reaches_out):
        engine = engine.model_copy(update={"name": engine.name or run.engine.name})
    return run.model_copy(update={"model": chosen.model, "engine": engine})


def _head(key: str) -> str:
    return key.partition(".")[0]


def _without_model(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if _head(key) not in _OF_MODEL}


def _stored(root: Path, overrides: dict[str, Any], trust: bool) -> RunConfig:
    """The configuration of a run directory with the user's settings. Raises ConfigError if it names
    something outside of it, without `trust`."""
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
