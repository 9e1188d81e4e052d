"""The table of engines, and the only function that makes an engine from settings.

A new engine is a class with `from_settings` and one entry here; docs/engines.md says what each is.
"""

import logging
from dataclasses import dataclass
from typing import Any, Protocol

from agentsgym.generation.models import UnsupportedModelError
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.types import Engine, TrainableEngine, trainable
from agentsgym.types.names import ConfigError, import_path
from agentsgym.types.text import docs_page

logger = logging.getLogger(__name__)


class ClosableEngine(Engine, Protocol):
    """The engines that the table's classes make."""

    def close(self) -> None:
        """End connections; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """One engine.

    Args:
        name: its name in the setting `engine.name`.
        path: dotted path of its class, which is imported when it is made.
        training: whether a trainer can use it.
        remote: whether it samples from servers (`engine.urls`, `served_model`, `key_env`).
        launches: whether it can start them itself (`engine.launch`), and actors on Ray can ask
            them too.
        names_model: whether `engine.served_model` must say which model.
        fallback: the engine that replaces it for a model that it does not support, unless `name`
            names it; the one that has it keeps caches (`engine.cache_gib`).
    """

    name: str
    path: str
    training: bool = True
    remote: bool = False
    launches: bool = False
    names_model: bool = False
    fallback: str | None = None


_HERE = "agentsgym.generation"
ENGINES: dict[str, EngineEntry] = {
    entry.name: entry
    for entry in (
        EngineEntry("embedded", f"{_HERE}.embedded.engine.EmbeddedEngine", fallback="plain"),
        EngineEntry("plain", f"{_HERE}.plain.PlainEngine"),
        EngineEntry("vllm", f"{_HERE}.vllm.engine.VLLMEngine", remote=True, launches=True),
        EngineEntry(
            "chat", f"{_HERE}.chat.ChatEngine", training=False, remote=True, names_model=True
        ),
    )
}
"""All engines by name. Of those here and of those that are remote the first is the default."""

_OF_SERVERS = ("urls", "served_model", "key_env", "take_over")
"""What says where servers are."""


def choose(settings: EngineSettings, *, training: bool) -> EngineEntry:
    """The entry that the settings select.

    Raises ConfigError for an engine that does not serve the purpose, a missing setting that it
    needs, and a setting that it would ignore.
    """
    elsewhere = bool(settings.urls or settings.launch)
    name = settings.name or next(e.name for e in ENGINES.values() if e.remote == elsewhere)
    if name not in ENGINES:
        raise ConfigError(f"engine.name must be one of {', '.join(ENGINES)}, got {name!r}")
    entry = ENGINES[name]
    problem = _problem(entry, settings, training)
    if problem is not None:
        raise ConfigError(problem)
    return entry


def _problem(entry: EngineEntry, settings: EngineSettings, training: bool) -> str | None:
    name = f"engine {entry.name!r}"
    fitting = [e.name for e in ENGINES.values() if e.training or not training]
    if entry.name not in fitting:
        return (
            f"{name} is not for this: it returns no token ids, so it cannot be trained; use "
            f"{', '.join(fitting)}"
        )
    named = [key for key in _OF_SERVERS if getattr(settings, key)]
    unused = [] if entry.remote else list(named)
    if settings.cache_gib is not None and entry.fallback is None:
        unused.append("cache_gib")
    if settings.launch and not entry.launches:
        unused = ["launch"]
    if unused:
        return f"{name} does not use engine.{unused[0]}; leave it out, or name another engine"
    if settings.launch and named:
        return (
            f"engine.launch starts servers, and engine.{named[0]} is for servers that run already; "
            "leave one of them out"
        )
    if entry.remote and not settings.urls and not settings.launch:
        return f"{name} needs engine.urls" + (" or engine.launch" if entry.launches else "")
    if settings.take_over and not (training and entry.launches):
        return "engine.take_over is for trainings with servers; leave it out"
    if not (settings.seeds or entry.launches):
        return f"{name} has the noise of its sessions; engine.seeds=false is for vLLM servers"
    if entry.names_model and not settings.served_model:
        return f"{name} needs engine.served_model"
    for key in ("command", "launch_args"):
        if getattr(settings, key) and not settings.launch:
            return f"engine.{key} belongs to engine.launch, the number of servers to start"
    return None


def make_engine(settings: EngineSettings, parts: EngineParts, *, training: bool) -> ClosableEngine:
    """The engine that the settings select, or its fallback for a model that it does not support.

    Raises the errors of `choose` and of its class.
    """
    entry = choose(settings, training=training)
    try:
        return _made(entry, settings, parts)
    except UnsupportedModelError as error:
        if entry.fallback is None or settings.name is not None:
            raise
        logger.warning(
            "%s; the %s engine samples instead, which is slower (%s)",
            error.reason,
            entry.fallback,
            docs_page("Engines and models"),
        )
        return _made(ENGINES[entry.fallback], settings, parts)


def check_launch(settings: EngineSettings) -> None:
    """Raise ConfigError if there is no program that could start the servers."""
    if settings.launch:
        class_of(choose(settings, training=False)).check_command(settings.command)


def class_of(entry: EngineEntry) -> Any:
    """The entry's class, which is imported."""
    return import_path(entry.path, trust=True)


def _made(entry: EngineEntry, settings: EngineSettings, parts: EngineParts) -> ClosableEngine:
    made: ClosableEngine = class_of(entry).from_settings(settings, parts)
    return made


def make_trainable(settings: EngineSettings, parts: EngineParts) -> TrainableEngine:
    """The engine that a trainer's settings select."""
    return trainable(make_engine(settings, parts, training=True))
