"""The games of each source of a warm start."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import ConfigError, EnvPool, MultistepEnv
from agentsgym.evaluation import default_cluster
from agentsgym.generation.factory import ENGINES, make_engine
from agentsgym.generation.settings import EngineParts
from agentsgym.runs.endpoint import CHAT, check_complete, purpose_of
from agentsgym.runs.from_config import check_installed
from agentsgym.runs.scripted_agents import scripted_agent
from agentsgym.runs.warm_start.exported_games import check_export, exported_games
from agentsgym.runs.warm_start.games import played_games
from agentsgym.runs.warm_start.settings import ENGINE, EXPORT, ROLLOUTS, GamesConfig
from agentsgym.runs.warm_start.stored_games import check_run, stored_games
from agentsgym.types import Agent, Rollout, SamplingParams

_MOST_COMPARED = 100_000  # training rows


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the run gives a source: its environment without a tokenizer, its training rows and
    held-out rows, the environments with the model's tokenizer, and the run's limits."""

    env: MultistepEnv
    rows: Sequence[Mapping[str, Any]]
    held_out: Iterable[Mapping[str, Any]]
    envs: EnvPool
    seed: int
    max_rollout_tokens: int | None
    note: Callable[[str], None]


def check_source(games: GamesConfig, env: MultistepEnv) -> None:
    """Raise ConfigError if the source is not there."""
    if games.source == ROLLOUTS:
        check_run(str(games.run))
    elif games.source == EXPORT:
        check_export(str(games.data))
    elif games.source == CHAT:
        _check_endpoint(games)
    else:
        _scripted(games, env, 0)


def source_games(
    games: GamesConfig, around: Surroundings, done: Sequence[int] = ()
) -> Iterator[Sequence[Rollout]]:
    """The games in parts, to be kept as they come; `done` has the numbers of games in the parts
    that were kept before, which are left out. Raises the errors of its source."""
    if games.source in (ROLLOUTS, EXPORT):
        codec = around.envs.get(around.rows[0]).codec
        assert codec is not None
        read = stored_games if games.source == ROLLOUTS else exported_games
        wanted = _of_training_tasks(around)
        yield read(games, codec, wanted, around.max_rollout_tokens, around.note)
        return
    with _player(games, around) as agent:
        yield from played_games(
            around.rows,
            agent,
            around.envs,
            games,
            around.seed,
            max_rollout_tokens=around.max_rollout_tokens,
            done=done,
        )


@contextmanager
def _player(games: GamesConfig, around: Surroundings) -> Iterator[Agent]:
    if games.source != CHAT:
        yield _scripted(games, around.env, around.seed)
        return
    assert games.engine is not None
    engine = make_engine(games.engine.settings(), EngineParts(), purpose_of(ENGINE))
    sampling = SamplingParams(games.max_answer_tokens, games.temperature)
    try:
        yield DirectOutputAgent(engine, sampling, seed=around.seed)
    finally:
        engine.close()


def _scripted(games: GamesConfig, env: MultistepEnv, seed: int) -> Agent:
    try:
        return scripted_agent(env, games.source, seed=seed)
    except ConfigError as error:
        raise ConfigError(f"warm_start.source: {error}") from error


def _check_endpoint(games: GamesConfig) -> None:
    assert games.engine is not None
    check_complete(games.engine, ENGINE)
    check_installed(ENGINES[CHAT])


def _of_training_tasks(around: Surroundings) -> Callable[[Rollout], bool]:
    """Selects games of this environment, but none on a task that only the evaluation has. Of a
    large training set not every row is read: then none on any task of the evaluation."""
    held_out = {default_cluster(row["task_data"]) for row in around.held_out}
    if len(around.rows) <= _MOST_COMPARED:
        held_out -= {default_cluster(row["task_data"]) for row in around.rows}
    path = around.env.class_path

    def wanted(rollout: Rollout) -> bool:
        same = rollout.env_class_path == path
        return same and default_cluster(rollout.task_data) not in held_out

    return wanted
