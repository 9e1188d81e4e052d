"""The agent that a run's configuration names: a scripted agent, a model, or an endpoint."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.generation.factory import ClosableEngine, Purpose, choose, make_engine
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.runs.config import RunConfig
from agentsgym.runs.from_config import check_installed
from agentsgym.runs.model_config import SCRIPTED
from agentsgym.runs.policy import load_policy, load_tokenizer
from agentsgym.runs.progress import Silent
from agentsgym.runs.scripted_agents import scripted_agent
from agentsgym.training.setting_parsers import limits
from agentsgym.types import Agent, SamplingParams

_SPEECH_TOKENS = 512  # cap of an action if we cannot count the model's tokens


@contextmanager
def evaluated_agent(
    run: RunConfig, env: MultistepEnv, seed: int, settings: EngineSettings, purpose: Purpose
) -> Iterator[Agent]:
    """The agent `run.model.path` in `env`. The engine in the settings samples a model's actions;
    it is closed at the end.

    Raises ConfigError if there is no such agent or engine, and the errors of the engine's class.
    """
    path = run.model.path
    if path.startswith(SCRIPTED):
        _refuse_engine(path, settings, purpose)
        yield scripted_agent(env, path.removeprefix(SCRIPTED), seed=seed)
        return
    engine = _engine(run, settings, purpose)
    try:
        yield DirectOutputAgent(engine, _sampling(run, speaks=engine.tokenizer is None), seed=seed)
    finally:
        engine.close()


def _engine(run: RunConfig, settings: EngineSettings, purpose: Purpose) -> ClosableEngine:
    try:
        entry = choose(settings, purpose)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    check_installed(entry)
    load = cache(partial(_load, run))
    parts = EngineParts(model=lambda: load().model, tokenizer=partial(_tokenizer, run, load))
    return make_engine(settings, parts, purpose)


def _sampling(run: RunConfig, *, speaks: bool) -> SamplingParams:
    """The sampling settings; `speaks` says that the engine only returns text."""
    cap, stops = limits(run.train)
    if speaks and "max_action_tokens" not in run.train:
        cap = _SPEECH_TOKENS
    return SamplingParams(cap, run.eval.temperature, stop=tuple(stops))


def _refuse_engine(model: str, settings: EngineSettings, purpose: Purpose) -> None:
    for key in ("engine", "engine_urls", "served_model", "key_env"):
        if getattr(settings, key):
            raise ConfigError(f"{model} has no engine, so {purpose.written(key)} has no effect")


def _load(run: RunConfig) -> Any:
    import torch

    if run.threads is not None:
        torch.set_num_threads(run.threads)
    policy = load_policy(run, Silent())
    if torch.cuda.is_available():
        policy.model.to("cuda")
    return policy


def _tokenizer(run: RunConfig, load: Any) -> Any:
    """The model's tokenizer; its weights are loaded only if something else needs them."""
    return load().tokenizer if load.cache_info().currsize else load_tokenizer(run)
