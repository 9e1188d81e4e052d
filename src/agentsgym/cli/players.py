"""Who plays in `agentsgym eval` and `play --agent`: a model of the command line, as a run with its
engine, its environment and how it samples."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.cli.command import given_settings
from agentsgym.cli.console import err, fail, reason, tell
from agentsgym.envs import ConfigError
from agentsgym.evaluation import Played
from agentsgym.runs import RunConfig, load_run, merge, parse_config
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.players import contestant
from agentsgym.runs.settings import CHAT, SCRIPTED
from agentsgym.runs.trust import check_stored, foreign_code, import_stored, with_trust
from agentsgym.types import RolloutRequest

Given = Mapping[str, Any]
"""Settings of a run that the command line gives, by their dotted keys."""

_OF_MODEL, _OF_PLACE = ("model", "engine"), ("env_config", "data")
_OF_SAMPLING = ("max_action_tokens", "max_rollout_tokens", "stop_strings", "trust")
_OF_PLAY = (
    *_OF_PLACE,
    *_OF_MODEL,
    "eval",
    "threads",
    *(f"train.{name}" for name in _OF_SAMPLING),
)


def settings_of_play(models: Sequence[str], arguments: Sequence[str], options: Given) -> Given:
    """The `KEY=VALUE` arguments and the options. Raises ConfigError, also for settings of sampling
    where no model samples."""
    given = given_settings(arguments, _OF_PLAY) | dict(options)
    of_sampling = {"eval.temperature", "train.max_action_tokens"} & given.keys()
    if of_sampling and all(model.startswith(SCRIPTED) for model in models):
        raise ConfigError(f"{', '.join(sorted(of_sampling))}: no model samples here")
    return given


@dataclass(frozen=True, slots=True)
class Player:
    """A model by the `name` on the command line, and its run."""

    name: str
    run: RunConfig

    def play(
        self, place: RunConfig, requests: Sequence[RolloutRequest], output: Path | None = None
    ) -> Played:
        """What it plays in the environment of `place`."""
        seed = self.run.eval.seed
        with contestant(self.name, self.run, seed=seed, note=tell) as loaded:
            return loaded.play(place, requests, seed=seed, output=output)


def refuse_if_all_failed(played: Iterable[Played]) -> None:
    """Exit with an error if a player played no rollout to its end."""
    for one in played:
        if one.evaluation.failures == one.evaluation.rollouts:
            raise fail(f"every rollout failed; the first: {reason(one.rollouts[0].error)}")


def players(models: Sequence[str], env: str | None, given: Given, *, trust: bool) -> list[Player]:
    """MODEL and those of --vs, which play in the environment of MODEL and sample as it does, where
    their own runs do not say it. Raises ConfigError."""

    def run_of(
        name: str, env: str | None, without: Collection[str], beside: str | None = None
    ) -> RunConfig:
        heads = {*without, *(() if name in _at_engine(models) else ("engine",))}
        own = {key: value for key, value in given.items() if _head(key) not in heads}
        return evaluated_run(name, env, own, trust=trust, beside=beside)

    model, *others = models
    first = run_of(model, env, (), next(iter(others), None))
    runs = (run_of(name, first.env, ("model", *_OF_PLACE)) for name in others)
    rest = (run.model_copy(update={"eval": first.eval}) for run in runs)
    return [Player(name, run) for name, run in zip(models, (first, *rest), strict=True)]


def _at_engine(models: Sequence[str]) -> list[str]:
    """The models that the settings of the engine are for: chat:NAME, or else the first that is no
    scripted agent."""
    chats = [one for one in models if one.startswith(CHAT)]
    return chats or [one for one in models if not one.startswith(SCRIPTED)][:1] or [models[0]]


def evaluated_run(
    agent: str, env: str | None, given: Given, *, trust: bool = False, beside: str | None = None
) -> RunConfig:
    """The agent and the environment of an evaluation, with the user's settings.

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


def model_in(run: RunDirectory) -> Path:
    """The trained model of a run, or its newest checkpoint if training is not finished."""
    if run.model.is_dir():
        return run.model
    checkpoint = run.last_checkpoint()
    if checkpoint is None:
        raise ConfigError(f"{run.root} contains neither a model nor a checkpoint yet")
    return checkpoint[1]


def _is_run(agent: str) -> bool:
    return not agent.startswith((SCRIPTED, CHAT)) and RunDirectory(Path(agent)).is_run()


def _place_of(run: str | None, given: Given, trust: bool) -> dict[str, Any]:
    """The environment of a run, with the user's settings, and how the run evaluates."""
    if run is None or not _is_run(run):
        raise ConfigError("name the environment with --env (see agentsgym envs)")
    stored = _stored(Path(run), _without_model(given), trust)
    return stored.model_dump(include={"env", "env_config", "eval", "data"})


def _of_directory(root: Path, env: str | None, given: Given, trust: bool) -> RunConfig:
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


def _without_model(given: Given) -> dict[str, Any]:
    return {key: value for key, value in given.items() if _head(key) not in _OF_MODEL}


def _stored(root: Path, overrides: Given, trust: bool) -> RunConfig:
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
