"""The run that `agentsgym eval` and `agentsgym play --agent` make of their arguments."""

from pathlib import Path
from typing import Any

from agentsgym.cli.console import BAD_USAGE, err, fail
from agentsgym.cli.engine_options import CHAT, SCRIPTED
from agentsgym.cli.options import model_in, model_with, split_settings
from agentsgym.generation.settings import EngineSettings
from agentsgym.runs import RunConfig, load_run, parse_config
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.trust import check_untrusted, is_own, named_code, with_trust
from agentsgym.types.settings import read
from agentsgym.types.trust import import_from_here


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
    run's section `eval`. `trust` is for directories of somebody else. Raises ConfigError.
    """
    import_from_here(env or "")
    directory = RunDirectory(Path(agent))
    if not agent.startswith((SCRIPTED, CHAT)) and directory.is_run():
        return _of_directory(directory, env, given, trust)
    settings, more = split_settings(given)
    if env is None:
        place = _place_of(beside, settings, trust)
    else:
        place = {"env": env, "env_config": settings}
    data = {**place, "name": "eval", **more}
    data["model"] = model_with({}, more, agent)
    run = parse_config(data)
    return with_trust(run) if trust else run


def answerer_of(run: RunConfig) -> dict[str, Any]:
    """The section `answerer` of a run as `KEY=VALUE` settings, for a second one."""
    same = run.answerer.model_dump() if run.answerer else {}
    return {f"answerer.{key}": value for key, value in same.items()}


def _place_of(run: str | None, settings: dict[str, Any], trust: bool) -> dict[str, Any]:
    """The environment of a run, with the user's settings of it, and how the run evaluates."""
    root = Path(run or "")
    if run is None or run.startswith((SCRIPTED, CHAT)) or not RunDirectory(root).is_run():
        raise fail("name the environment with --env (see agentsgym envs)", BAD_USAGE)
    overrides = {f"env_config.{key}": value for key, value in settings.items()}
    found = _stored(root, overrides, trust or is_own(root))
    return {"env": found.env, "env_config": found.env_config, "eval": found.eval.model_dump()}


def _of_directory(
    directory: RunDirectory, env: str | None, given: dict[str, Any], trust: bool
) -> RunConfig:
    settings, more = split_settings(given)
    overrides: dict[str, Any] = {}
    if env is not None:
        overrides = {"env": env}
        if env != load_run(directory.root).env:
            overrides["env_config"] = {}
    overrides |= {f"env_config.{key}": value for key, value in settings.items()}
    ours = trust or is_own(directory.root)
    run = _stored(directory.root, overrides, ours)
    if trust:
        run = with_trust(run)
    path = str(model_in(directory))
    section = model_with(run.model.at(path).model_dump(), more, path)
    mine = {"answerer": more["answerer"]} if more.get("answerer") else {}
    now = parse_config({"env": run.env, "model": section, **mine})
    answerer = now.answerer or (run.answerer if ours else None)
    if run.answerer and not answerer:
        err.print(
            "The endpoint that answers questions in the run is not asked: name it yourself with "
            "answerer.urls=[URL] and answerer.served_model=NAME, or the knowledge table answers."
        )
    updates = {"model": now.model, "answerer": answerer}
    return _with_own_engine(run, more).model_copy(update=updates)


def _stored(root: Path, overrides: dict[str, Any], ours: bool) -> RunConfig:
    """The configuration of a run directory with the user's settings. Raises ConfigError if it is
    not `ours` and names what it may not."""
    run = load_run(root, overrides)
    if not ours:
        run = check_untrusted(run, overrides)
    import_from_here(*named_code(run))
    return run


def _with_own_engine(run: RunConfig, given: dict[str, Any]) -> RunConfig:
    """The run with the user's section `engine` instead of its own, which was for training."""
    if run.engine.reaches_out:
        err.print(
            "The servers that the run names are not used: name them yourself with --base-url URL, "
            "or its model is sampled in this process."
        )
    engine = read(EngineSettings, given.get("engine"), "engine.")
    capacity = engine.capacity or run.engine.capacity
    return run.model_copy(update={"engine": engine.model_copy(update={"capacity": capacity})})
