"""The model of a run: its first weights, the reference of KL, and the agents that play with it."""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

from agentsgym.agents import DirectOutputAgent, SeededAgent
from agentsgym.agents.scripted import SEEDED, scripted_agent
from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.generation.factory import choose, make_engine
from agentsgym.generation.models import is_adapted
from agentsgym.generation.settings import (
    MODEL_FOLDER,
    EngineParts,
    ModelToServe,
    new_directory,
)
from agentsgym.runs.files.atomic import replacing
from agentsgym.runs.models import Use, device_in_use, load_model, load_tokenizer_of
from agentsgym.runs.parts import part
from agentsgym.runs.pretrained import (
    Policy,
    is_adapter,
    load_pretrained,
    merged,
    pretrained_tokenizer,
)
from agentsgym.runs.progress import Progress
from agentsgym.runs.settings import BUILTIN, SCRIPTED, TINY, ModelSettings, RunConfig
from agentsgym.training.settings import ACTION_TOKENS
from agentsgym.types import Agent, SamplingParams
from agentsgym.warm_start.settings import WarmStartSettings


def warm_starts(config: RunConfig) -> bool:
    """Whether a run begins with a warm start of a pretrained model."""
    return config.model.path != TINY and config.warm_start.source is not None


def warm_start_of(config: RunConfig) -> WarmStartSettings:
    """The run's section `warm_start`, with the defaults of its model. Raises ConfigError with a key
    that has no effect."""
    try:
        return config.warm_start.resolved(new_model=config.model.path == TINY)
    except ValueError as error:
        raise ConfigError(f"warm_start.{error}") from None


def load_policy(config: RunConfig, progress: Progress, *, training: bool = True) -> Policy:
    """The model that `config.model` names, to train or only to evaluate it. Raises ConfigError if
    it does not exist or cannot be loaded here."""
    if config.model.path == TINY:
        made = part("warm_start").new_model(config, progress)
        players = {name: asdict(one) for name, one in made.players.items()}
        figures = dict(made.figures) | {"settings": config.warm_start, "players": players}
        return Policy(made.model, made.tokenizer, figures)
    return load_model(config.model, _use(config, training))


def load_trained(config: RunConfig, folder: Path) -> Policy:
    """The run's model with the weights in `folder`: a checkpoint, or the trained model.

    Raises ConfigError if they are whole weights and the run trains an adapter, or the reverse.
    """
    from agentsgym.training.checkpoints import load_adapters

    adapted = config.model.lora is not None or is_adapter(Path(config.model.path))
    if is_adapter(folder) != adapted:
        kinds = ("whole weights", "an adapter")
        raise ConfigError(
            f"{folder} contains {kinds[is_adapter(folder)]}, but the run trains {kinds[adapted]}; "
            "model.lora must stay as it was"
        )
    if not adapted:
        attention = config.model.attn_implementation
        return load_pretrained(folder, ModelSettings(attn_implementation=attention))
    policy = load_model(config.model, _use(config, training=True))
    try:
        load_adapters(policy.model, folder)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Policy(policy.model, pretrained_tokenizer(folder))


def _use(config: RunConfig, training: bool) -> Use:
    device = device_in_use(use_cpu=training and bool(config.train.use_cpu))
    return Use(training=training, device=device, trust=config.train.trust is True)


def load_tokenizer(config: RunConfig) -> Any:
    """The tokenizer of the model that `config.model` names, without its weights.

    Raises ConfigError if it does not exist.
    """
    if config.model.path == TINY:
        raise ConfigError("model: 'tiny' is made in this process, so no server can serve it")
    return load_tokenizer_of(config.model, _use(config, training=False))


def name_reference(model: Any, section: ModelSettings, folder: Path) -> None:
    """Set the name of `model` to its initial weights, which TRL loads as the reference.

    A resumed model was loaded from its checkpoint and would otherwise be its own reference.
    `section` is the run's `model`; if its path alone does not lead to its weights, a copy is kept
    in `folder`. The reference of an adapter is in the model itself.
    """
    if is_adapted(model):
        return
    source = section.path
    if source == TINY or source.startswith(BUILTIN) or section.revision is not None:
        if not folder.is_dir():
            with replacing(folder) as part:
                model.save_pretrained(part)
        source = str(folder)
    model.config._name_or_path = source


# -- who plays -------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)
AgentFor = Callable[[MultistepEnv], Agent]
"""Finds the agent for an environment."""
_SPEECH_TOKENS = 512  # cap of an action if we cannot count the model's tokens


@contextmanager
def evaluated_agents(
    run: RunConfig, seed: int, note: Callable[[str], None] = logger.info
) -> Iterator[AgentFor]:
    """The agents `run.model.path` of any environments: one model for all, or each one's own
    scripted agent. The run's engine samples a model's actions; it is closed at the end.

    Raises ConfigError if there is no such agent or engine, and the errors of the engine's class.
    """
    path, settings = run.model.path, run.engine
    if path.startswith(SCRIPTED):
        for key in ("name", "urls", "served_model", "key_env", "launch"):
            if getattr(settings, key):
                raise ConfigError(f"{path} has no engine, so engine.{key} has no effect")
        yield lambda env: _scripted(env, path.removeprefix(SCRIPTED), seed)
        return
    choose(settings, training=False)
    load = cache(partial(_load, run))
    with _servers_directory() as directory:
        parts = EngineParts(
            model=lambda: _on_gpu(load().model, run),
            # The weights are loaded only if something else needs them.
            tokenizer=lambda: (
                load().tokenizer if load.cache_info().currsize else load_tokenizer(run)
            ),
            served=lambda: _served(run, load()),
            directory=directory,
            note=note,
        )
        with closing(make_engine(settings, parts, training=False)) as engine:
            most = _SPEECH_TOKENS if engine.tokenizer is None else ACTION_TOKENS
            sampling = SamplingParams(
                run.train.given.get("max_action_tokens", most),
                run.eval.temperature,
                stop=tuple(run.train.stop_strings),
            )
            agent = DirectOutputAgent(engine, sampling, seed=seed)
            yield lambda env: agent


def _scripted(env: MultistepEnv, kind: str, seed: int) -> Agent:
    """A scripted agent; one that draws its actions is seeded anew for each rollout."""

    def make(seed: int) -> Agent:
        return scripted_agent(env, kind, seed=seed)

    return SeededAgent(make, seed=seed) if kind in SEEDED else make(seed)


@contextmanager
def _servers_directory() -> Iterator[Callable[[], Path]]:
    """Inside the block, a function that makes a directory for servers. It is removed at the end;
    after an error its logs, which are still of use, stay."""
    directory = cache(new_directory)
    left: str = MODEL_FOLDER
    try:
        yield directory
        left = ""
    finally:
        if directory.cache_info().currsize:
            shutil.rmtree(directory() / left, ignore_errors=True)


def _load(run: RunConfig) -> Policy:
    import torch

    if run.threads is not None:
        torch.set_num_threads(run.threads)
    return load_policy(run, Progress(), training=False)


def _on_gpu(model: Any, run: RunConfig) -> Any:
    """The model on the GPU, if there is one; for engines of this process only, so that servers
    have all of its memory."""
    import torch

    on_gpu = torch.cuda.is_available() and run.model.quantization is None
    return model.to("cuda") if on_gpu else model


def _served(run: RunConfig, policy: Policy) -> ModelToServe:
    """The model for servers that are started, an adapter merged into its base."""
    from agentsgym.generation.embedded.precision import resolve_dtype

    model = policy.model
    if is_adapted(model):
        model = merged(model)
        model.config._name_or_path = ""
    context = run.train.max_rollout_tokens
    return ModelToServe(model, policy.tokenizer, resolve_dtype(run.model.precision), context)
