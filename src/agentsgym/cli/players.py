"""Who plays in `agentsgym eval` and `play --agent`: a model of the command line, as a run with its
engine, its environment and how it samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsgym.cli.console import BAD_USAGE, err, fail, tell
from agentsgym.cli.options import split_settings
from agentsgym.envs import ConfigError
from agentsgym.evaluation import Played
from agentsgym.generation.endpoint import ask, is_url
from agentsgym.runs import RunConfig, load_run, parse_config
from agentsgym.runs.evaluate import contestant
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.trust import check_untrusted, foreign_code, is_own, with_trust
from agentsgym.types import RolloutRequest
from agentsgym.types.names import import_from_here

CHAT, SCRIPTED = "chat:", "agent:"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayOptions:
    """The models of the command line, and the options that say how they play; None is what a run
    directory says, or the default."""

    models: tuple[str, ...]
    output: Path | None
    trust: bool
    seed: int
    episodes: int | None
    rollouts_per_task: int | None
    temperature: float | None
    max_action_tokens: int | None
    threads: int | None
    engine: dict[str, Any]

    def first(self, env: str | None, given: dict[str, Any]) -> RunConfig:
        """The run of MODEL. Raises ConfigError."""
        model, beside = self.models[0], next(iter(self.models[1:]), None)
        given = given | self._engine_of(model)
        return self._applied(evaluated_run(model, env, given, trust=self.trust, beside=beside))

    def other(self, name: str, first: RunConfig) -> RunConfig:
        """The run of a model of --vs in the environment of the first one: it samples and is
        answered as that one, where its own run does not say it. Raises ConfigError."""
        answerer = first.answerer.model_dump() if first.answerer else {}
        given = {f"answerer.{key}": value for key, value in answerer.items()}
        given |= self._engine_of(name)
        run = evaluated_run(name, first.env, given, trust=self.trust)
        return self._applied(run.model_copy(update={"eval": first.eval}))

    def _engine_of(self, name: str) -> dict[str, Any]:
        """The settings of an engine belong to the models chat:NAME, or else to the first that is no
        scripted agent; addresses have the key too."""
        chats = [one for one in self.models if one.startswith(CHAT)]
        models = [one for one in self.models if not one.startswith(SCRIPTED)]
        if name in (chats or models[:1] or self.models[:1]):
            return self.engine
        key = "engine.key_env"
        return {key: self.engine[key]} if is_url(name) and key in self.engine else {}

    def _applied(self, run: RunConfig) -> RunConfig:
        names = ("episodes", "rollouts_per_task", "temperature")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        cap = (
            {} if self.max_action_tokens is None else {"max_action_tokens": self.max_action_tokens}
        )
        return run.model_copy(
            update={
                "eval": run.eval.model_copy(update=given),
                "train": run.train | cap,
                "threads": self.threads or run.threads,
            }
        )


def evaluated_run(
    agent: str,
    env: str | None,
    given: dict[str, Any],
    *,
    trust: bool = False,
    beside: str | None = None,
) -> RunConfig:
    """The agent and the environment of an evaluation, with the user's `KEY=VALUE` settings.

    A run directory provides its model and its settings, those of the environment if `env` is None
    or the run's own. An agent without an environment gets that of the run `beside` it, and the
    run's section `eval`. The address of a server becomes the model that is served there. `trust` is
    for directories of somebody else.

    Raises ConfigError; NothingThere if nothing answers at an address, and MissingKey.
    """
    import_from_here(env or "")
    settings, sections = split_settings(given)
    if _is_run(agent):
        run = _of_directory(Path(agent), env, settings, sections, trust)
    else:
        place: dict[str, Any] = {"env": env, "env_config": settings}
        if env is None:
            place = _place_of(beside, settings, trust)
        model = {"path": agent, **sections.get("model", {})}
        run = parse_config({**place, "name": "eval", **sections, "model": model})
    run = with_trust(run) if trust else run
    return _at_endpoint(run, agent) if is_url(agent) else _with_names(run)


def play_with(
    name: str,
    run: RunConfig,
    place: RunConfig,
    requests: Sequence[RolloutRequest],
    seed: int,
    output: Path | None,
) -> Played:
    """The model of `run` plays these in the environment of `place`."""
    with contestant(name, run, seed=seed, note=tell) as player:
        return player.play(place, requests, seed=seed, output=output)


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
    stored = _stored(Path(run), {}, settings, trust or is_own(Path(run)))
    return {"env": stored.env, "env_config": stored.env_config, "eval": stored.eval.model_dump()}


def _of_directory(
    root: Path,
    env: str | None,
    settings: dict[str, Any],
    sections: dict[str, Any],
    trust: bool,
) -> RunConfig:
    place: dict[str, Any] = {} if env is None else {"env": env}
    if env is not None and env != load_run(root).env:
        place["env_config"] = {}
    ours = trust or is_own(root)
    run = _stored(root, place, settings, ours)
    path = str(model_in(RunDirectory(root)))
    model = {**run.model.at(path).model_dump(), **sections.get("model", {})}
    given = parse_config({"env": run.env, **sections, "model": model})
    answerer = given.answerer or (run.answerer if ours else None)
    if run.answerer and not answerer:
        err.print(
            "The endpoint that answers questions in the run is not asked: name it yourself with "
            "answerer.urls=[URL] and answerer.served_model=NAME, or the knowledge table answers."
        )
    if run.engine.reaches_out:  # it was for training
        err.print(
            "The servers that the run names are not used: name them yourself with engine.urls=URL, "
            "or its model is sampled in this process."
        )
    capacity = given.engine.capacity or run.engine.capacity
    engine = given.engine.model_copy(update={"capacity": capacity})
    return run.model_copy(update={"model": given.model, "answerer": answerer, "engine": engine})


def _stored(root: Path, place: dict[str, Any], settings: dict[str, Any], ours: bool) -> RunConfig:
    """The configuration of a run directory with the user's settings. Raises ConfigError if it is
    not `ours` and names what it may not."""
    overrides = place | {f"env_config.{key}": value for key, value in settings.items()}
    run = load_run(root, overrides)
    if not ours:
        check_untrusted(run, overrides)
    import_from_here(*foreign_code(run))
    return run


def _with_names(run: RunConfig) -> RunConfig:
    """The run with the engine that MODEL means, and the model's name at it."""
    engine, path = run.engine, run.model.path
    name = engine.name or ("chat" if path.startswith(CHAT) else None)
    served = engine.served_model
    if name == "chat" or engine.urls:
        served = served or path.removeprefix(CHAT) or None
    return _changed(run, path, name=name, served_model=served)


def _changed(run: RunConfig, path: str, **engine: Any) -> RunConfig:
    """The run with another model and other settings of its engine."""
    return run.model_copy(
        update={
            "model": run.model.model_copy(update={"path": path}),
            "engine": run.engine.model_copy(update=engine),
        }
    )


def _at_endpoint(run: RunConfig, url: str) -> RunConfig:
    """The run of what is served at `url`. A vLLM server whose tokenizer is known is asked with
    token ids, anything else by chat."""
    engine, path = run.engine, run.model.path
    if engine.urls or engine.launch:
        raise ConfigError(f"{url} already says where the model is; leave the other servers out")
    endpoint = ask(url, engine.key_env)
    served = engine.served_model or next(iter(endpoint.names), None)
    if served is None:
        raise ConfigError(f"{url} lists no models; name one with engine.served_model=NAME")
    tokenizer = endpoint.folder if path == url else path
    by_ids = engine.name == "vllm" or (engine.name is None and endpoint.is_vllm)
    if by_ids and tokenizer is not None:
        tell(f"{served} at a vLLM server, with the tokenizer of {tokenizer}")
        return _changed(run, tokenizer, name="vllm", urls=[endpoint.url], served_model=served)
    if engine.name == "vllm":
        raise ConfigError(f"the tokenizer of {served} is not here; name it: model.path=DIRECTORY")
    hint = "; model.path=DIRECTORY names its tokenizer, for exact token ids" if by_ids else ""
    tell(f"{served} at a chat endpoint{hint}")
    return _changed(run, f"{CHAT}{served}", name="chat", urls=[url], served_model=served)
