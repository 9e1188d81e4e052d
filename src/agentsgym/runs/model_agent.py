"""The agent that a run's configuration names: a scripted agent, a model, or an endpoint."""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.agents.seeded import SeededAgent
from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.generation.factory import ClosableEngine, choose, make_engine
from agentsgym.generation.models import is_adapted
from agentsgym.generation.settings import (
    MODEL_FOLDER,
    EngineParts,
    EngineSettings,
    ServedModel,
    new_directory,
)
from agentsgym.runs.from_config import check_installed
from agentsgym.runs.models.pretrained import Policy
from agentsgym.runs.policy import load_policy, load_tokenizer
from agentsgym.runs.progress import Silent
from agentsgym.runs.scripted_agents import SEEDED, scripted_agent
from agentsgym.runs.settings import SCRIPTED, RunConfig
from agentsgym.training.settings import ACTION_TOKENS
from agentsgym.types import Agent, SamplingParams

logger = logging.getLogger(__name__)
_SPEECH_TOKENS = 512  # cap of an action if we cannot count the model's tokens


AgentFor = Callable[[MultistepEnv], Agent]
"""Finds the agent for an environment."""


@contextmanager
def evaluated_agent(
    run: RunConfig,
    env: MultistepEnv,
    seed: int,
    settings: EngineSettings,
    note: Callable[[str], None] = logger.info,
) -> Iterator[Agent]:
    """The agent `run.model.path` in `env`; see `evaluated_agents`."""
    with evaluated_agents(run, seed, settings, note) as agent_for:
        yield agent_for(env)


@contextmanager
def evaluated_agents(
    run: RunConfig,
    seed: int,
    settings: EngineSettings,
    note: Callable[[str], None] = logger.info,
) -> Iterator[AgentFor]:
    """The agents `run.model.path` of several environments: one model for all, or each one's own
    scripted agent. The engine in the settings samples a model's actions; it is closed at the end.

    Raises ConfigError if there is no such agent or engine, and the errors of the engine's class.
    """
    path = run.model.path
    if path.startswith(SCRIPTED):
        _refuse_engine(path, settings)
        yield lambda env: _scripted(env, path.removeprefix(SCRIPTED), seed)
        return
    with (
        _servers_directory() as directory,
        closing(_engine(run, settings, directory, note)) as engine,
    ):
        sampling = _sampling(run, speaks=engine.tokenizer is None)
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


def _engine(
    run: RunConfig,
    settings: EngineSettings,
    directory: Callable[[], Path],
    note: Callable[[str], None],
) -> ClosableEngine:
    check_installed(choose(settings, training=False))
    load = cache(partial(_load, run))
    parts = EngineParts(
        model=lambda: _on_gpu(load().model, run),
        tokenizer=partial(_tokenizer, run, load),
        served=partial(_served, run, load),
        directory=directory,
        note=note,
    )
    return make_engine(settings, parts, training=False)


def _served(run: RunConfig, load: Callable[[], Policy], directory: Path) -> ServedModel:
    """The model for servers that are started: a whole model where it is; any other is written, an
    adapter merged into its base."""
    from agentsgym.generation.embedded.precision import resolve_dtype
    from agentsgym.generation.vllm.weight_files import served_model

    policy = load()
    model = policy.model.merge_and_unload() if is_adapted(policy.model) else policy.model
    if model is not policy.model:
        model.config._name_or_path = ""
    dtype = resolve_dtype(run.model.precision)
    context = run.train.get("max_rollout_tokens")
    return served_model(model, policy.tokenizer, directory, dtype=dtype, context=context)


def _sampling(run: RunConfig, *, speaks: bool) -> SamplingParams:
    """The sampling settings; `speaks` says that the engine only returns text."""
    cap = run.train.get("max_action_tokens", _SPEECH_TOKENS if speaks else ACTION_TOKENS)
    stops = tuple(run.train.get("stop_strings", ()))
    return SamplingParams(cap, run.eval.temperature, stop=stops)


def _refuse_engine(model: str, settings: EngineSettings) -> None:
    for key in ("name", "urls", "served_model", "key_env", "launch"):
        if getattr(settings, key):
            raise ConfigError(f"{model} has no engine, so engine.{key} has no effect")


def _load(run: RunConfig) -> Any:
    import torch

    if run.threads is not None:
        torch.set_num_threads(run.threads)
    return load_policy(run, Silent(), training=False)


def _on_gpu(model: Any, run: RunConfig) -> Any:
    """The model on the GPU, if there is one; for engines of this process only, so that servers
    have all of its memory."""
    import torch

    on_gpu = torch.cuda.is_available() and run.model.quantization is None
    return model.to("cuda") if on_gpu else model


def _tokenizer(run: RunConfig, load: Any) -> Any:
    """The model's tokenizer; its weights are loaded only if something else needs them."""
    return load().tokenizer if load.cache_info().currsize else load_tokenizer(run)
