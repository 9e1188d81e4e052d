"""The agents of a run: a scripted agent of the environment, a model, or an endpoint."""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
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
from agentsgym.runs.policy import load_policy, load_tokenizer
from agentsgym.runs.pretrained import Policy, merged
from agentsgym.runs.progress import Progress
from agentsgym.runs.settings import SCRIPTED, RunConfig
from agentsgym.training.settings import ACTION_TOKENS
from agentsgym.types import Agent, SamplingParams

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
