"""Evaluations of a run: what is played of its held-out tasks, by the model in training or by one
that is loaded once and plays any environments, the directory in which one is saved, and what
players earn that need no model.
"""

import dataclasses
import hashlib
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.agents.scripted import RandomAgent, ScriptedAgent, SeededAgent, available_agents
from agentsgym.envs import ConfigError, EnvPool, MultistepEnv
from agentsgym.evaluation import Played, assess_played, evaluate_requests, passes, rollout_requests
from agentsgym.rollout.drive import is_engine_agent, tokenizer_of
from agentsgym.runs.checkpoints import weights_digest
from agentsgym.runs.files import RunDirectory, StoredRollout, read_rollouts
from agentsgym.runs.files.directory import lock_directory
from agentsgym.runs.files.records import SavedFigures
from agentsgym.runs.files.rollouts import write_rollouts
from agentsgym.runs.from_config import make_env, run_tasks, versions
from agentsgym.runs.models import rendering
from agentsgym.runs.policy import AgentFor, evaluated_agents
from agentsgym.runs.settings import SCRIPTED, RunConfig
from agentsgym.runs.sources import flat
from agentsgym.runs.trust import trusted
from agentsgym.types import Agent, Rollout, RolloutRequest
from agentsgym.types.text import masked, named_error, plain, short_repr

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
    shared = trainer.ranks.gather([rollout.without_tokens() for rollout in rollouts])
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
        agent, pool = self.ready(bare, place)
        mine = self.limited(requests)
        if output is None:
            return evaluate_requests(mine, agent, pool, seed=seed)
        settings = self._settings(bare, mine, agent, seed)
        with saved_evaluation(output, self.name, settings, self.note) as saved:
            played = evaluate_requests(
                mine, agent, pool, seed=seed, stored=saved.rollouts, on_rollout=saved.add
            )
            saved.finish(played)
        return played

    def ready(self, env: MultistepEnv, place: RunConfig) -> tuple[Agent, EnvPool]:
        """The agent that plays `env`, the environment of `place`, and a pool for it."""
        agent = self.agent_for(env)
        options = self._rendering(tokenizer_of(agent))
        return agent, EnvPool(tokenizer_of(agent), trusted(place), template_options=options)

    def limited(self, requests: Sequence[RolloutRequest]) -> list[RolloutRequest]:
        """The requests with the run's limit of tokens."""
        limit = self.run.train.max_rollout_tokens
        return [replace(request, max_rollout_tokens=limit) for request in requests]

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
            "max_rollout_tokens": run.train.max_rollout_tokens,
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


# -- an evaluation in a directory ------------------------------------------------------------------


_PHASE = "eval"
_MOST_WAITING = 16  # rollouts that a killed process has to play again


class SavedEvaluation:
    """The evaluation in a directory: `rollouts` were played before, by session id; `add` stores
    more, `finish` writes the figures. A rollout that failed is played again."""

    def __init__(self, root: Path, file: SavedFigures) -> None:
        self._root = root
        self._file = file
        self._waiting: list[Rollout] = []
        self._begun = time.monotonic()
        self.rollouts = {one.session_id: one for one in read_rollouts(root) if not one.failed}
        file.figures, file.passes = None, []
        self._write("running")

    def add(self, rollout: Rollout) -> None:
        """Store a rollout, together with the next ones."""
        self._waiting.append(rollout)
        if len(self._waiting) >= _MOST_WAITING:
            self._flush()

    def finish(self, played: Played) -> None:
        """Write all rollouts in their order, and the figures."""
        write_whole(self._root, played.rollouts)
        self._file.figures = played.evaluation
        self._file.passes = passes(played.rollouts)
        self._write("finished")

    def interrupt(self) -> None:
        """Write what there is, unless the evaluation is finished."""
        if self._file.status == "running":
            try:
                self._flush()
            finally:
                self._write("interrupted")

    def _flush(self) -> None:
        if self._waiting:
            number = len(list(RunDirectory(self._root).rollout_files())) + 1
            _write(self._root, self._waiting, f"part-{number:06d}")
        self._waiting = []

    def _write(self, status: Any) -> None:
        now = time.monotonic()
        self._file.seconds = round(self._file.seconds + now - self._begun, 3)
        self._begun = now
        self._file.status = status
        write = self._file.write if status == "running" else self._file.write_end
        write(RunDirectory(self._root).evaluation)


def _write(root: Path, rollouts: Sequence[Rollout], part: str | None = None) -> Path:
    path = RunDirectory(root).rollout_file(_PHASE, 0, part)
    write_rollouts(path, (StoredRollout(one, _PHASE, 0, dataset=part) for one in rollouts))
    return path


def write_whole(root: Path, rollouts: Sequence[Rollout]) -> None:
    """Store the rollouts of a finished evaluation together, instead of its parts."""
    whole = _write(root, rollouts)
    for _, _, path in RunDirectory(root).rollout_files():
        if path != whole:
            path.unlink(missing_ok=True)


@contextmanager
def saved_evaluation(
    root: Path, model: str, settings: Mapping[str, Any], note: Callable[[str], None]
) -> Iterator[SavedEvaluation]:
    """The evaluation of `model` with these settings in the directory `root`, new or continued.

    Raises ConfigError if the directory has another evaluation or other files, RunInUse if another
    process writes it.
    """
    new = not RunDirectory(root).evaluation.is_file()
    file = _new_file(root, model, settings) if new else _continued_file(root, settings)
    lock = lock_directory(root)
    try:
        saved = SavedEvaluation(root, file)
        if saved.rollouts:
            note(f"{root} has {len(saved.rollouts)} rollouts, which are not played again")
        try:
            yield saved
        finally:
            saved.interrupt()
    finally:
        lock.release()


def _new_file(root: Path, model: str, settings: Mapping[str, Any]) -> SavedFigures:
    if root.exists() and (not root.is_dir() or any(p.name != ".lock" for p in root.iterdir())):
        raise ConfigError(f"{root} is no evaluation and not empty; name another --output")
    return SavedFigures(model=model, settings=plain(masked(dict(settings))), versions=versions())


def _continued_file(root: Path, settings: Mapping[str, Any]) -> SavedFigures:
    old = SavedFigures.read(RunDirectory(root).evaluation)
    before, now = flat(old.settings), flat(plain(masked(dict(settings))))
    for key in dict.fromkeys([*now, *before]):
        if before.get(key) != now.get(key):
            raise ConfigError(
                f"{root} has an evaluation in which {key} is {short_repr(before.get(key))}, not "
                f"{short_repr(now.get(key))}; name another --output"
            )
    old.versions = versions()
    return old


# -- what players earn that need no model ----------------------------------------------------------


RANDOM, OPTIMAL, ALWAYS = "random", "optimal", "always "
"""Names of the random player, of the environment's best and, followed by its action, of one that
always acts alike."""
_GAMES, _ACTIONS, _SECONDS = 64, 8, 5.0
"""Games of each player, constant actions that are tried, and seconds after which no further player
begins: an environment that takes longer costs more than the comparison is worth."""


def simple_players(
    env: MultistepEnv, requests: Sequence[RolloutRequest], played: Sequence[Rollout], seed: int
) -> dict[str, float]:
    """The mean rewards of the random player, of the best constant action and, where no
    `reference_score` is known, of the environment's best player, on some of the requests, by name.
    The constant actions are the most frequent ones of the model's `played` rollouts. Without those
    that the environment can't have, and empty if it waits for others."""
    if env.blocking or not requests:
        return {}
    some = [
        replace(one, max_rollout_tokens=None) for one in requests[:: -(-len(requests) // _GAMES)]
    ]
    began, earned = time.monotonic(), dict[str, float]()
    try:
        for name, agent in _players(env, requests[0].task_data, played, seed):
            if time.monotonic() - began > _SECONDS:
                break
            reward = evaluate_requests(some, agent, EnvPool(None, envs=[env])).evaluation.reward
            if reward is not None:
                earned[name] = reward
    except Exception as error:  # a user's environment may raise anything
        logger.warning("%s: the scores of simple players: %s", env.name, named_error(error))
    constant = [name for name in earned if name.startswith(ALWAYS)]
    best = max(constant, key=lambda name: earned[name], default=None)
    return {name: reward for name, reward in earned.items() if name in (RANDOM, OPTIMAL, best)}


def _players(
    env: MultistepEnv, task: Mapping[str, Any], played: Sequence[Rollout], seed: int
) -> Iterator[tuple[str, Agent]]:
    if RandomAgent.can_play(env):
        yield RANDOM, SeededAgent(lambda own: RandomAgent(env, seed=own), seed=seed)
    texts = Counter(s.action for r in played for e in r.episodes for s in e.actions)
    for text, _ in texts.most_common(_ACTIONS):
        yield f"{ALWAYS}{short_repr(text, 40)}", ScriptedAgent([text])
    optimal = None if env.reference_score(task) is not None else env.optimal_agent()
    if optimal is not None:
        yield OPTIMAL, optimal
