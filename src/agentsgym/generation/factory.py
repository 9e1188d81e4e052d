"""The table of engines, and the only function that makes an engine from settings.

A new engine is a class with `from_settings` and one entry here. docs/engines.md holds this table.
"""

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from agentsgym.generation.models import UnsupportedModelError
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.types import Engine, TrainableEngine, trainable

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
        name: its name in the setting `engine`.
        path: dotted path of its class, which is imported when it is made.
        help: one sentence for the docs.
        takes: settings that it uses, besides `engine_capacity`.
        needs: those of them that are required.
        chosen_by: the setting that selects it if `engine` is not given.
        training: whether a trainer can use it.
        evaluation: whether it can be made without a trainer.
        package: the package that it needs, beyond agentsgym's own requirements.
        extra: the extra of agentsgym that contains the package.
        accelerator: whether it needs a GPU here.
        fallback: the engine that replaces it for a model that it does not support, unless `engine`
            names it.
        launches: whether it can start its servers itself (`launch`), instead of `engine_urls`.
        elsewhere: whether other processes can make engines of their own over its servers.
    """

    name: str
    path: str
    help: str
    takes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    chosen_by: str | None = None
    training: bool = True
    evaluation: bool = True
    package: str | None = None
    extra: str | None = None
    accelerator: bool = False
    fallback: str | None = None
    launches: bool = False
    elsewhere: bool = False

    def is_chosen_by(self, settings: EngineSettings) -> bool:
        """Whether a setting other than its name selects it."""
        wanted = self.chosen_by is not None and bool(getattr(settings, self.chosen_by))
        return wanted or (self.launches and settings.launch > 0)


_SERVED = ("engine_urls", "served_model", "key_env")

ENGINES = {
    entry.name: entry
    for entry in (
        EngineEntry(
            "embedded",
            "agentsgym.generation.embedded.engine.EmbeddedEngine",
            "A Hugging Face model in this process; in training the trained module itself.",
            fallback="plain",
        ),
        EngineEntry(
            "process",
            "agentsgym.generation.embedded.process.ProcessEngine",
            "`embedded` in a process of its own, with a copy of the weights: it samples while the "
            "optimizer works.",
            evaluation=False,
        ),
        EngineEntry(
            "plain",
            "agentsgym.generation.plain.PlainEngine",
            "The same for models that `embedded` refuses; slower, because a turn reads all again.",
        ),
        EngineEntry(
            "vllm",
            "agentsgym.generation.vllm.engine.VLLMEngine",
            "vLLM servers, running or launched: token ids in, token ids and log-probabilities out.",
            takes=_SERVED,
            needs=("engine_urls",),
            chosen_by="engine_urls",
            package="aiohttp",
            extra="http",
            launches=True,
            elsewhere=True,
        ),
        EngineEntry(
            "trl_vllm",
            "agentsgym.generation.vllm.trl.TRLVLLMEngine",
            "TRL's own vLLM, colocated or a server, which TRL starts and keeps at the weights.",
            takes=("use_vllm",),
            needs=("use_vllm",),
            chosen_by="use_vllm",
            evaluation=False,
            package="vllm",
            accelerator=True,
        ),
        EngineEntry(
            "chat",
            "agentsgym.generation.chat.ChatEngine",
            "An OpenAI-compatible chat endpoint: text in, text out.",
            takes=_SERVED,
            needs=("engine_urls", "served_model"),
            training=False,
            package="aiohttp",
            extra="http",
        ),
    )
}
"""All engines by name. The first is the default if no setting selects another."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """The purpose of an engine, and how its settings are written there, for messages."""

    training: bool
    written: Callable[[str], str] = str


_OF_TRAINER = {
    name: f"engine_{name}"
    for name in ("served_model", "key_env", "launch", "command", "launch_args")
}
TRAINING = Purpose(training=True, written=lambda key: _OF_TRAINER.get(key, key))


def choose(settings: EngineSettings, purpose: Purpose) -> EngineEntry:
    """The entry that the settings select.

    Raises ValueError for a name that is not in the table, an engine that does not serve the
    purpose, a missing setting that it needs, and a setting that it would ignore.
    """
    entry = _named(settings, purpose)
    written = purpose.written
    fitting = [e.name for e in ENGINES.values() if _serves(e, purpose)]
    if not _serves(entry, purpose):
        why = (
            "it returns no token ids, so it cannot be trained"
            if purpose.training
            else "only a trainer can make it"
        )
        raise ValueError(f"engine {entry.name!r} is not for this: {why}; use {', '.join(fitting)}")
    for key in entry.needs:
        if not getattr(settings, key) and not (entry.launches and settings.launch):
            instead = f" or {written('launch')}" if entry.launches else ""
            raise ValueError(f"engine {entry.name!r} needs {written(key)}{instead}")
    for key in ("engine_urls", "use_vllm", "served_model", "key_env"):
        if getattr(settings, key) and key not in entry.takes:
            users = [e.name for e in ENGINES.values() if key in e.takes and e.name in fitting]
            raise ValueError(
                f"engine {entry.name!r} does not use {written(key)}; leave it out, or let "
                f"{written('engine')} be {' or '.join(users) or 'another one'}"
            )
    _check_launch(entry, settings, written)
    return entry


def _check_launch(
    entry: EngineEntry, settings: EngineSettings, written: Callable[[str], str]
) -> None:
    """Raise ValueError for settings of servers that are not launched, or that run already."""
    launch = written("launch")
    if settings.launch and not entry.launches:
        raise ValueError(f"engine {entry.name!r} does not use {launch}; leave it out")
    for key in ("command", "launch_args"):
        if getattr(settings, key) and not settings.launch:
            raise ValueError(f"{written(key)} belongs to {launch}, the number of servers to start")
    for key in ("engine_urls", "served_model", "key_env"):
        if getattr(settings, key) and settings.launch:
            raise ValueError(
                f"{launch} starts servers, and {written(key)} is for servers that run already; "
                "leave one of them out"
            )


def make_engine(settings: EngineSettings, parts: EngineParts, purpose: Purpose) -> ClosableEngine:
    """The engine that the settings select, or its fallback for a model that it does not support.

    Raises the errors of `choose` and of its class.
    """
    entry = choose(settings, purpose)
    try:
        return _made(entry, settings, parts)
    except UnsupportedModelError as error:
        if entry.fallback is None or settings.engine is not None:
            raise
        logger.warning(
            "%s; the %s engine samples instead, which is slower (docs/engines.md)",
            error.reason,
            entry.fallback,
        )
        return _made(ENGINES[entry.fallback], settings, parts)


def _made(entry: EngineEntry, settings: EngineSettings, parts: EngineParts) -> ClosableEngine:
    module, _, name = entry.path.rpartition(".")
    kind: Any = getattr(importlib.import_module(module), name)
    made: ClosableEngine = kind.from_settings(settings, parts)
    return made


def make_trainable(settings: EngineSettings, parts: EngineParts) -> TrainableEngine:
    """The engine that a trainer's settings select."""
    return trainable(make_engine(settings, parts, TRAINING))


def _serves(entry: EngineEntry, purpose: Purpose) -> bool:
    return entry.training if purpose.training else entry.evaluation


def _named(settings: EngineSettings, purpose: Purpose) -> EngineEntry:
    if settings.engine is not None:
        if settings.engine not in ENGINES:
            raise ValueError(
                f"{purpose.written('engine')} must be one of {', '.join(ENGINES)}, got "
                f"{settings.engine!r}"
            )
        return ENGINES[settings.engine]
    chosen = (entry for entry in ENGINES.values() if entry.is_chosen_by(settings))
    return next(chosen, next(iter(ENGINES.values())))


def _chosen(entry: EngineEntry) -> str:
    """How an engine is chosen, for the table."""
    if entry is next(iter(ENGINES.values())):
        return "the default"
    if entry.chosen_by:
        return f"`{entry.chosen_by}`{', `launch`' if entry.launches else ''}"
    replaced = next((e.name for e in ENGINES.values() if e.fallback == entry.name), None)
    return f"a model that `{replaced}` refuses" if replaced else "its name"


def engines_table() -> str:
    """The table of docs/engines.md, as Markdown."""
    lines = ["| `engine` | what it is | chosen by | training | `eval`, `play` |", "|" + "---|" * 5]
    for entry in ENGINES.values():
        cells = (
            f"`{entry.name}`",
            entry.help,
            _chosen(entry),
            "yes" if entry.training else "no",
            "yes" if entry.evaluation else "no",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
