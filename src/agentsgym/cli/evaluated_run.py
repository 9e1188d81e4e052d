"""The run that `agentsgym eval` and `agentsgym play --agent` make of their arguments."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.cli.console import BAD_USAGE, err, fail
from agentsgym.cli.engine_options import CHAT, SCRIPTED
from agentsgym.cli.options import model_in, model_with, split_settings
from agentsgym.envs.user_code import import_from_here

if TYPE_CHECKING:
    from agentsgym.runs import RunConfig
    from agentsgym.runs.files import RunDirectory
    from agentsgym.runs.trust import Allowed


def evaluated_run(
    agent: str,
    env: str | None,
    given: dict[str, Any],
    allowed: "Allowed",
    beside: str | None = None,
) -> "RunConfig":
    """The agent and the environment of an evaluation, with the user's `KEY=VALUE` settings.

    A run directory provides its model and its settings, those of the environment if `env` is None
    or the run's own. An agent without an environment gets that of the run `beside` it, and the
    run's section `eval`. Raises ConfigError.
    """
    from agentsgym.runs import parse_config
    from agentsgym.runs.files import RunDirectory
    from agentsgym.runs.trust import permitted

    import_from_here(env or "", *allowed.names)
    directory = RunDirectory(Path(agent))
    if not agent.startswith((SCRIPTED, CHAT)) and directory.is_run():
        return _of_directory(directory, env, given, allowed)
    settings, more = split_settings(given)
    if env is None:
        place = _place_of(beside, settings, allowed)
    else:
        place = {"env": env, "env_config": settings}
    data = {**place, "name": "eval", **more}
    data["model"] = model_with({}, more, agent)
    return permitted(parse_config(data), allowed)


def _place_of(run: str | None, settings: dict[str, Any], allowed: "Allowed") -> dict[str, Any]:
    """The environment of a run, with the user's settings of it, and how the run evaluates."""
    from agentsgym.runs import load_run
    from agentsgym.runs.files import RunDirectory
    from agentsgym.runs.trust import distrusted

    root = Path(run or "")
    if run is None or run.startswith((SCRIPTED, CHAT)) or not RunDirectory(root).is_run():
        raise fail("name the environment with --env (see agentsgym envs)", BAD_USAGE)
    overrides = {f"env_config.{key}": value for key, value in settings.items()}
    found = distrusted(load_run(root, overrides), allowed.and_named_in(overrides), overrides)
    return {"env": found.env, "env_config": found.env_config, "eval": found.eval.model_dump()}


def _of_directory(
    directory: "RunDirectory", env: str | None, given: dict[str, Any], allowed: "Allowed"
) -> "RunConfig":
    from agentsgym.runs import load_run, parse_config
    from agentsgym.runs.trust import distrusted

    settings, more = split_settings(given)
    overrides: dict[str, Any] = {}
    if env is not None:
        overrides = {"env": env}
        if env != load_run(directory.root).env:
            overrides["env_config"] = {}
    overrides |= {f"env_config.{key}": value for key, value in settings.items()}
    stored = load_run(directory.root, overrides)
    run = distrusted(stored, allowed.and_named_in(overrides), overrides)
    path = str(model_in(directory))
    section = model_with(run.model.at(path).model_dump(), more, path)
    now = parse_config({"env": run.env, "model": section}).model
    own = {"model": now, "answerer": more.get("answerer") or {}}
    return _with_own_engine(run, more).model_copy(update=own)


def _with_own_engine(run: "RunConfig", given: dict[str, Any]) -> "RunConfig":
    """The run with the user's section `engine` instead of its own, because a run directory is not
    trusted: only the user may name servers and commands. The same holds for `answerer`."""
    from agentsgym.runs.engine_config import engine_of, replaced

    if engine_of(run.engine, run.train).reaches_out:
        err.print(
            "The servers that the run names are not used: name them yourself with --base-url URL, "
            "or its model is sampled in this process."
        )
    if run.answerer and not given.get("answerer"):
        err.print(
            "The endpoint that answers questions in the run is not asked: name it yourself with "
            "answerer.urls=[URL] and answerer.served_model=NAME, or the knowledge table answers."
        )
    engine, train = replaced(run.engine, run.train, given.get("engine"))
    return run.model_copy(update={"engine": engine, "train": train})
