"""Who plays in an evaluation: a model that is loaded once and plays any environments, or scripted
agents, and the directory in which their evaluation is saved and continued.
"""

import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from agentsgym.agents import DirectOutputAgent, SeededAgent
from agentsgym.agents.scripted import SEEDED, available_agents, scripted_agent
from agentsgym.envs import ConfigError, EnvPool, MultistepEnv
from agentsgym.evaluation import Played, evaluate_requests, passes
from agentsgym.generation.factory import choose, make_engine
from agentsgym.generation.models import is_adapted
from agentsgym.generation.settings import (
    MODEL_FOLDER,
    EngineParts,
    ModelToServe,
    new_directory,
)
from agentsgym.rollout.drive import is_engine_agent, tokenizer_of
from agentsgym.runs.files import RunDirectory, StoredRollout, read_rollouts
from agentsgym.runs.files.directory import lock_directory
from agentsgym.runs.files.records import SavedFigures
from agentsgym.runs.files.rollouts import write_rollouts
from agentsgym.runs.from_config import make_env, rendering, versions
from agentsgym.runs.models import Policy, Use, load_model, load_tokenizer
from agentsgym.runs.settings import SCRIPTED, RunConfig
from agentsgym.runs.sources import flat
from agentsgym.runs.trust import trusted
from agentsgym.runs.weights import merged, weights_digest
from agentsgym.training.settings import ACTION_TOKENS
from agentsgym.types import Agent, Rollout, RolloutRequest, SamplingParams
from agentsgym.types.text import masked, plain, short_repr

Note = Callable[[str], None]
_SPEECH_TOKENS = 512  # cap of an action if we cannot count the model's tokens


@dataclass(frozen=True, slots=True)
class Contestant:
    """A loaded model, or the scripted agents of a kind. `name` is what the user called it; `run`
    has its model and how it samples."""

    name: str
    run: RunConfig
    agent_for: Callable[[MultistepEnv], Agent]
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
    """The agents `run.model.path` of any environments: one model for all, or each one's own
    scripted agent. The run's engine samples a model's actions; it is closed at the end. Raises
    ConfigError if there is no such agent or engine, and the errors of the engine's class."""
    path, settings, note_once = run.model.path, run.engine, cache(note)
    if path.startswith(SCRIPTED):
        for key in ("name", "urls", "served_model", "key_env", "launch"):
            if getattr(settings, key):
                raise ConfigError(f"{path} has no engine, so engine.{key} has no effect")
        kind = path.removeprefix(SCRIPTED)
        yield Contestant(name, run, lambda env: _scripted(env, kind, seed), note_once)
        return
    choose(settings, training=False)
    load = cache(partial(_load, run))
    with _servers_directory() as directory:
        parts = EngineParts(
            model=lambda: _on_gpu(load().model, run),
            tokenizer=lambda: _tokenizer(run, load if load.cache_info().currsize else None),
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
            yield Contestant(name, run, lambda env: agent, note_once)


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
    return load_model(run.model, Use.of(run, training=False))


def _tokenizer(run: RunConfig, loaded: Callable[[], Policy] | None) -> Any:
    """The model's tokenizer; weights are loaded only if something else needs them."""
    if loaded is not None:
        return loaded().tokenizer
    return load_tokenizer(run.model, Use.of(run, training=False))


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
    Raises ConfigError if it has another evaluation or other files, RunInUse if it is in use."""
    file = _file_of(root, model, settings)
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


def _file_of(root: Path, model: str, settings: Mapping[str, Any]) -> SavedFigures:
    """The file of a new evaluation, or of the one in `root`, which is to be continued."""
    now = plain(masked(dict(settings)))
    if not RunDirectory(root).evaluation.is_file():
        if root.exists() and (not root.is_dir() or any(p.name != ".lock" for p in root.iterdir())):
            raise ConfigError(f"{root} is no evaluation and not empty; name another --output")
        return SavedFigures(model=model, settings=now, versions=versions())
    old = SavedFigures.read(RunDirectory(root).evaluation)
    before, now = flat(old.settings), flat(now)
    for key in dict.fromkeys([*now, *before]):
        if before.get(key) != now.get(key):
            raise ConfigError(
                f"{root} has an evaluation in which {key} is {short_repr(before.get(key))}, not "
                f"{short_repr(now.get(key))}; name another --output"
            )
    old.versions = versions()
    return old
