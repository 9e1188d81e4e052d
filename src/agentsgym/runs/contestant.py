"""A model or scripted agent that is evaluated: it is loaded once and plays any environments."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.evaluation import Played, evaluate_requests, rollout_requests
from agentsgym.generation.factory import Purpose
from agentsgym.generation.settings import EngineSettings
from agentsgym.rollout.drive import is_engine_agent, tokenizer_of
from agentsgym.runs.answerer import answering
from agentsgym.runs.chat_settings import evaluated_rendering, rendering
from agentsgym.runs.config import RunConfig
from agentsgym.runs.from_config import held_out, make_env
from agentsgym.runs.model_agent import AgentFor, evaluated_agents
from agentsgym.runs.model_config import SCRIPTED
from agentsgym.runs.saved_evaluation import saved_evaluation
from agentsgym.runs.scripted_agents import available_agents
from agentsgym.runs.trust import trusted
from agentsgym.runs.weights_digest import weights_digest
from agentsgym.types import Agent, RolloutRequest
from agentsgym.types.text import plain

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Contestant:
    """A loaded model, or the scripted agents of a kind. `name` is what the user called it; `run`
    has its model and how it samples."""

    name: str
    run: RunConfig
    engine: EngineSettings
    agent_for: AgentFor
    note: Note

    def play(
        self,
        place: RunConfig,
        asked: Sequence[RolloutRequest],
        *,
        seed: int,
        output: Path | None = None,
    ) -> Played:
        """Play the tasks in the environment of `place`; with `output`, write and continue them
        there."""
        bare = make_env(place)
        agent = self.agent_for(bare)
        tokenizer = tokenizer_of(agent)
        pool = EnvPool(
            tokenizer,
            trusted(place),
            [bare] if bare.needs else (),
            template_options=evaluated_rendering(self.run, tokenizer, self.note),
        )
        limit = self.run.train.get("max_rollout_tokens")
        mine = [replace(request, max_rollout_tokens=limit) for request in asked]
        if output is None:
            with answering(bare, self.note):
                return evaluate_requests(mine, agent, pool, seed=seed)
        settings = self._settings(bare, mine, agent, seed) | _answerer(place)
        with (
            saved_evaluation(output, self.name, settings, self.note) as saved,
            answering(bare, self.note),
        ):
            played = evaluate_requests(
                mine, agent, pool, seed=seed, stored=saved.rollouts, on_rollout=saved.add
            )
            saved.finish(played)
        return played

    def has_agent_for(self, place: RunConfig) -> bool:
        """Whether it can play this environment: a scripted agent may be missing in some."""
        path = self.run.model.path
        kind = path.removeprefix(SCRIPTED)
        return kind == path or kind in available_agents(make_env(place))

    def _settings(
        self, env: MultistepEnv, asked: Sequence[RolloutRequest], agent: Agent, seed: int
    ) -> dict[str, Any]:
        """What is played and how, as it is stored."""
        run = self.run
        sampling = agent.sampling if is_engine_agent(agent) else None
        return what_is_played(env, asked, seed) | {
            "sampling": None if sampling is None else dataclasses.asdict(sampling),
            "template": rendering(run, tokenizer_of(agent)),
            "max_rollout_tokens": run.train.get("max_rollout_tokens"),
            "model": run.model.model_dump(),
            "weights": weights_digest(run.model.path),
            "engine": dataclasses.asdict(self.engine),
        }


def what_is_played(env: MultistepEnv, asked: Sequence[RolloutRequest], seed: int) -> dict[str, Any]:
    """The part of an evaluation's settings that both sides of a comparison share."""
    return {
        "env": env.class_path,
        "env_config": dict(env.config),
        "seed": seed,
        "episodes": len(asked),
        "tasks": len({request.group for request in asked}),
        "tasks_digest": _digest(asked),
    }


def _answerer(place: RunConfig) -> dict[str, Any]:
    """Who answers, as it is stored; nothing for the knowledge table."""
    named = {key: place.answerer.get(key) for key in ("urls", "served_model")}
    return {"answerer": named} if place.answerer else {}


def _digest(asked: Sequence[RolloutRequest]) -> str:
    """A digest of the tasks, in their order, with their noise."""
    data = [[r.session_id, r.env_class_path, plain(r.task_data)] for r in asked]
    return hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=16).hexdigest()


@contextmanager
def contestant(
    name: str,
    run: RunConfig,
    engine: EngineSettings,
    *,
    seed: int,
    purpose: Purpose,
    note: Note,
) -> Iterator[Contestant]:
    """The model of `run`, loaded; its engine is closed at the end."""
    with evaluated_agents(run, seed, engine, purpose, note) as agent_for:
        yield Contestant(name, run, engine, agent_for, note)


def held_out_requests(run: RunConfig, seed: int) -> list[RolloutRequest]:
    """What an evaluation of `run` plays: its held-out tasks. Raises ConfigError if there are
    none."""
    rows = list(held_out(make_env(run), run.data))
    return rollout_requests(
        rows, run.eval.episodes, rollouts_per_task=run.eval.rollouts_per_task, seed=seed
    )
