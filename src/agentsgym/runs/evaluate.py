"""Evaluations of a run: what is played of its held-out tasks, by the model in training or by one
that is loaded once and plays any environments."""

import dataclasses
import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.envs import EnvPool, MultistepEnv
from agentsgym.evaluation import Played, assess_played, evaluate_requests, rollout_requests
from agentsgym.rollout.drive import is_engine_agent, tokenizer_of
from agentsgym.runs.agents import AgentFor, evaluated_agents
from agentsgym.runs.checkpoints import weights_digest
from agentsgym.runs.from_config import make_env, run_tasks
from agentsgym.runs.models.load import rendering
from agentsgym.runs.saved_evaluation import saved_evaluation
from agentsgym.runs.scripted_agents import available_agents
from agentsgym.runs.settings import SCRIPTED, RunConfig
from agentsgym.runs.trust import trusted
from agentsgym.types import Agent, Rollout, RolloutRequest
from agentsgym.types.text import named_error, plain

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer

logger = logging.getLogger(__name__)
Note = Callable[[str], None]


def held_out_requests(
    run: RunConfig,
    rows: Iterable[Mapping[str, Any]] | None = None,
    max_rollout_tokens: int | None = None,
) -> list[RolloutRequest]:
    """What an evaluation of `run` plays of its held-out tasks `rows`. Raises
    ConfigError if it has none."""
    return rollout_requests(
        list(run_tasks(make_env(run), run.data, "eval") if rows is None else rows),
        run.eval.rollouts,
        rollouts_per_task=run.eval.rollouts_per_task,
        seed=run.eval.seed,
        max_rollout_tokens=max_rollout_tokens,
    )


def evaluate_trainer(
    trainer: "GRPOEnvTrainer", requests: Sequence[RolloutRequest], step: int, *, seed: int
) -> Played:
    """Evaluate the trainer's weights after optimizer step `step`. All ranks must call it, with all
    requests; each plays its share. The figures are over the rollouts of all, and the rollouts in
    the result this rank's own."""
    collector = trainer.collector
    rollouts = trainer.play(collector.share(requests), step, collector.eval_sampling)
    # Figures need no tokens, which are long.
    shared = trainer.ranks.gather([replace(rollout, rows=()) for rollout in rollouts])
    shared.sort(key=lambda rollout: (rollout.group, rollout.index))
    played = assess_played(shared, collector.envs, seed=seed)
    return Played(played.evaluation, tuple(rollouts))


def other_references(
    env: MultistepEnv, requests: Sequence[RolloutRequest | Rollout]
) -> dict[str, float]:
    """The mean scores of the environment's other players on these tasks, by name; without those
    that are not known on every task."""
    try:
        scores = [env.other_references(one.task_data) for one in requests]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's environment may raise anything
        logger.warning("%s: the scores of other players: %s", env.name, named_error(error))
        return {}
    names = [name for name in scores[0] if all(name in one for one in scores)] if scores else []
    means = {name: math.fsum(one[name] for one in scores) / len(scores) for name in names}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}


@dataclass(frozen=True, slots=True)
class Contestant:
    """A loaded model, or the scripted agents of a kind. `name` is what the user called it; `run`
    has its model and how it samples."""

    name: str
    run: RunConfig
    agent_for: AgentFor
    note: Note

    def play(
        self,
        place: RunConfig,
        requests: Sequence[RolloutRequest],
        *,
        seed: int,
        output: Path | None = None,
    ) -> Played:
        """Play the tasks in the environment of `place`; with `output`, write and continue them
        there."""
        bare = make_env(place)
        agent = self.agent_for(bare)
        pool = EnvPool(
            tokenizer_of(agent),
            trusted(place),
            template_options=self._rendering(tokenizer_of(agent)),
        )
        limit = self.run.train.get("max_rollout_tokens")
        mine = [replace(request, max_rollout_tokens=limit) for request in requests]
        if output is None:
            return evaluate_requests(mine, agent, pool, seed=seed)
        settings = self._settings(bare, mine, agent, seed)
        with saved_evaluation(output, self.name, settings, self.note) as saved:
            played = evaluate_requests(
                mine, agent, pool, seed=seed, stored=saved.rollouts, on_rollout=saved.add
            )
            saved.finish(played)
        return played

    def _rendering(self, tokenizer: Any) -> dict[str, Any]:
        options = rendering(self.run.model, tokenizer)
        if tokenizer is None and options:
            self.note("chat_template_kwargs: no effect, for this agent's conversations are text")
        if tokenizer is not None and not (tokenizer.chat_template or options.get("chat_template")):
            self.note(
                "the model has no chat template: prompts and actions are joined as plain text; "
                "model.chat_template=FILE.jinja gives it the one that it was trained with"
            )
        return options

    def has_agent_for(self, place: RunConfig) -> bool:
        """Whether it can play this environment: a scripted agent may be missing in some."""
        path = self.run.model.path
        kind = path.removeprefix(SCRIPTED)
        return kind == path or kind in available_agents(make_env(place))

    def _settings(
        self, env: MultistepEnv, requests: Sequence[RolloutRequest], agent: Agent, seed: int
    ) -> dict[str, Any]:
        """What is played, with a digest of the tasks in their order and with their noise, and how,
        as it is stored."""
        run = self.run
        sampling = agent.sampling if is_engine_agent(agent) else None
        tasks = [[r.session_id, r.env_class_path, plain(r.task_data)] for r in requests]
        text = json.dumps(tasks, sort_keys=True).encode()
        return {
            "env": env.class_path,
            "env_config": env.config.model_dump(),
            "seed": seed,
            "rollouts": len(requests),
            "tasks": len({request.group for request in requests}),
            "tasks_digest": hashlib.blake2b(text, digest_size=16).hexdigest(),
            "sampling": None if sampling is None else dataclasses.asdict(sampling),
            "template": rendering(run.model, tokenizer_of(agent)),
            "max_rollout_tokens": run.train.get("max_rollout_tokens"),
            "model": run.model.model_dump(),
            "weights": weights_digest(run.model.path),
            "engine": run.engine.model_dump(),
        }


@contextmanager
def contestant(name: str, run: RunConfig, *, seed: int, note: Note) -> Iterator[Contestant]:
    """The model of `run`, loaded; its engine is closed at the end."""
    notes = set[str]()

    def note_once(text: str) -> None:
        if text not in notes:
            notes.add(text)
            note(text)

    with evaluated_agents(run, seed, note) as agent_for:
        yield Contestant(name, run, agent_for, note_once)
