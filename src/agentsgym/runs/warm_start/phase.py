"""The warm start of a run, in the folder `warm-start` of its directory.

Each part leaves its result on disk: figures of the untrained model, the games, checkpoints, the
trained model. A killed warm start continues after the last of them; a finished one is not repeated.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.evaluation import rollout_requests
from agentsgym.evaluation.metrics import record, step_means
from agentsgym.runs.files import RolloutWriter, RunDirectory, read_file, read_rollouts
from agentsgym.runs.files.atomic import DamagedFile, remove, replacing, write_text
from agentsgym.runs.from_config import make_env
from agentsgym.runs.progress import Progress
from agentsgym.runs.settings import TINY, RunConfig
from agentsgym.runs.signal_check import signal_text
from agentsgym.runs.warm_start.sources import Surroundings, check_source, source_games, teacher_of
from agentsgym.training.warm_start_settings import WarmStartSettings
from agentsgym.types import Rollout

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer
    from agentsgym.training.warm_start import WarmStartResult

GAMES, PROBE, EVALUATED = "warmstart", "probe", "warmstarted"
"""Phases of its rollouts: the games to imitate, the model's own games on training tasks before and
after, and the evaluation of the warm-started model."""


def warm_starts(config: RunConfig) -> bool:
    """Whether a run begins with a warm start of a pretrained model."""
    return config.model.path != TINY and config.warm_start.source is not None


def settings_of(config: RunConfig) -> WarmStartSettings:
    """The run's section `warm_start`, with the defaults of its model. Raises ConfigError with a key
    that has no effect."""
    try:
        return config.warm_start.resolved(new_model=config.model.path == TINY)
    except ValueError as error:
        raise ConfigError(f"warm_start.{error}") from None


def new_model(config: RunConfig, progress: Progress) -> "WarmStartResult":
    """The model `tiny`, newly made from games of the environment's teacher. Raises ConfigError if
    there is none."""
    from agentsgym.training.warm_start import warm_start

    if config.model.lora is not None:
        raise ConfigError("model.lora needs a model that exists; 'tiny' is trained as a whole")
    settings = settings_of(config)
    # The teacher reads the answers of the knowledge table, and an endpoint is slow.
    env = make_env(config.model_copy(update={"answerer": None}))
    try:
        teacher = teacher_of(settings, env)
    except ConfigError as error:
        raise ConfigError(
            f"model: tiny imitates a player first, but {error}; or let 'model' name a model"
        ) from error
    result = warm_start(env, teacher, settings, settings.seed, progress=progress.warm_start)
    _note_repetition(result.games, progress)
    return result


def _note_repetition(games: Sequence[Rollout], progress: Progress) -> None:
    """Tell if a player did the same in every game: there is next to nothing to learn from it."""
    played = {tuple(s.action for e in game.episodes for s in e.steps) for game in games}
    if len(games) > 1 and len(played) == 1:
        progress.note(
            f"all {len(games)} games of the warm start have the same actions; a player that draws "
            "must go on with its generator from game to game, and not seed it anew in each"
        )


def probe(
    trainer: "GRPOEnvTrainer", rows: Sequence[Mapping[str, Any]], tasks: int, seed: int
) -> tuple[dict[str, float], list[Rollout]]:
    """A group of games on each of `tasks` rows, with training's sampling settings, and their
    figures: `malformed`, `truncated` and the environment's own figures as means per action, and
    `groups_without_signal`, the share of groups whose rewards are equal."""
    args = trainer.args
    requests = rollout_requests(
        rows,
        tasks * args.num_generations,
        rollouts_per_task=args.num_generations,
        seed=seed,
        max_rollout_tokens=args.max_rollout_tokens,
    )
    trainer.push_weights(trainer.state.global_step)
    rollouts = trainer.collector.train(requests)
    live = [rollout for rollout in rollouts if not rollout.failed]
    rewards: dict[int, set[float]] = {}
    for rollout in live:
        rewards.setdefault(rollout.group, set()).add(rollout.final_reward)
    equal = sum(len(values) < 2 for values in rewards.values())
    figures = step_means([record(rollout) for rollout in live])
    return figures | {"groups_without_signal": equal / max(1, len(rewards))}, rollouts


class WarmStart:
    """The warm start of one run. The constructor checks the settings and touches no file.

    `resumes` says that the run continues: then its source is needed only for games that the run
    does not hold yet.
    """

    def __init__(
        self,
        config: RunConfig,
        env: MultistepEnv,
        rows: Any,
        held_out: Any,
        progress: Progress,
        *,
        resumes: bool = False,
    ) -> None:
        self._settings = settings_of(config)
        self._env = env
        self._rows: Sequence[Mapping[str, Any]] = (
            rows if hasattr(rows, "__getitem__") else list(rows)
        )
        self._held_out = held_out
        self._progress = progress
        self._directory = RunDirectory(config.directory)
        self._folder = self._directory.warm_start
        if not (resumes and self._has_games):
            check_source(self._settings, env)

    def __str__(self) -> str:
        return f"{self._settings.games} games, source {self._settings.source}"

    @property
    def model(self) -> Path:
        """The warm-started model, once it is finished."""
        return self._folder / "model"

    @property
    def finished(self) -> bool:
        """Whether the model is there."""
        return self.model.is_dir()

    @property
    def _has_games(self) -> bool:
        """Whether all games to imitate are stored, or have been learned from."""
        return self.finished or self._figures().get("games") is not None

    def carry_out(self, trainer: "GRPOEnvTrainer", write: RolloutWriter) -> dict[str, Any]:
        """Train the trainer's model in place, save it, and return the figures."""
        self._kept("before", lambda: self._probe(trainer, write, 0))
        if not self.finished:
            games = self._games(trainer, write)
            self._keep("training", self._train(trainer, games))
            self._set_reference(trainer)
            with replacing(self.model) as part:
                trainer.save_model(str(part))
        for checkpoint in self._folder.glob("checkpoint-*"):
            remove(checkpoint)
        trainer.sync.forget()
        self._kept("after", lambda: self._probe(trainer, write, 1))
        return self._figures()

    # -- the games ------------------------------------------------------------------------------

    def _games(self, trainer: "GRPOEnvTrainer", write: RolloutWriter) -> list[Rollout]:
        """The stored games, completed if the run was killed while they were played."""
        if not self._has_games:
            done = self._stored_parts()
            for number, rollouts in enumerate(self._new_games(trainer, done), len(done)):
                write(rollouts, {"phase": GAMES, "step": number, "advantages": None})
            games = list(read_rollouts(self._directory.root, GAMES))
            reward = sum(rollout.final_reward for rollout in games) / max(1, len(games))
            self._keep("games", {"games": len(games), "reward": reward})
            _note_repetition(games, self._progress)
        games = list(read_rollouts(self._directory.root, GAMES))
        vocabulary = len(trainer.tokenizer)
        ids = [row.token_ids for game in games for row in game.rows if len(row.token_ids)]
        if any(i.min() < 0 or i.max() >= vocabulary for i in ids):
            raise DamagedFile(f"the games in {self._directory.rollouts} are of another tokenizer")
        return games

    def _stored_parts(self) -> list[int]:
        """Number of games in each stored round; a damaged round and those after it are removed."""
        files = self._directory.rollout_files()
        stored = [(step, path) for phase, step, path in files if phase == GAMES]
        done: dict[int, int] = {}
        for step, path in stored:
            try:
                done[step] = done.get(step, 0) + sum(1 for _ in read_file(path))
            except DamagedFile as error:
                self._progress.note(f"{error}; these games are played again")
                done.pop(step, None)
                for later, remaining in stored:
                    if later >= step:
                        remaining.unlink(missing_ok=True)
                break
        return list(done.values())

    def _new_games(
        self, trainer: "GRPOEnvTrainer", done: Sequence[int]
    ) -> Iterator[Sequence[Rollout]]:
        return source_games(
            self._settings,
            Surroundings(
                self._env,
                self._rows,
                self._held_out,
                trainer.collector.envs,
                trainer.args.max_rollout_tokens,
                self._progress.note,
            ),
            done,
        )

    # -- training -------------------------------------------------------------------------------

    def _train(self, trainer: "GRPOEnvTrainer", games: Sequence[Rollout]) -> dict[str, Any]:
        from agentsgym.training.lessons import make_lessons
        from agentsgym.training.warm_start import fit

        settings = self._settings
        codec = trainer.collector.envs.get(self._rows[0]).codec
        assert codec is not None
        try:
            lessons = make_lessons(games, codec, settings.held_out_share, settings.seed)
        except ValueError as error:
            raise ConfigError(f"warm_start.source: {error}") from None
        result = fit(
            trainer.accelerator.unwrap_model(trainer.model),
            lessons,
            settings,
            pad_id=trainer.tokenizer.pad_token_id,
            folder=self._folder,
            autocast=trainer.accelerator.autocast,
            progress=self._progress.warm_start,
        )
        counts = {"examples": len(lessons.train), "held_out_examples": len(lessons.held_out)}
        return counts | {"targets": lessons.targets} | asdict(result)

    def _set_reference(self, trainer: "GRPOEnvTrainer") -> None:
        """The reference of KL is the warm-started model, as in a resumed run, which loads it."""
        from agentsgym.training.reference import become_reference

        if trainer.args.beta:
            unwrap = trainer.accelerator.unwrap_model
            reference = None if trainer.ref_model is None else unwrap(trainer.ref_model)
            become_reference(unwrap(trainer.model), reference)

    # -- the model's own games ------------------------------------------------------------------

    def _probe(self, trainer: "GRPOEnvTrainer", write: RolloutWriter, step: int) -> dict[str, Any]:
        tasks = self._settings.probe_tasks
        if not tasks:
            return {}
        figures, rollouts = probe(trainer, self._rows, tasks, self._settings.seed)
        write(rollouts, {"phase": PROBE, "step": step, "advantages": None})
        when = "after" if step else "before"
        self._progress.note(f"{when} the warm start: {signal_text(figures)}")
        return figures

    # -- figures on disk ------------------------------------------------------------------------

    def _kept(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A part's figures: stored ones, or those of doing it now."""
        known = self._figures().get(name)
        return known if isinstance(known, dict) else self._keep(name, make())

    def _keep(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        write_text(self._path, json.dumps(self._figures() | {name: values}, indent=2) + "\n")
        return values

    def _figures(self) -> dict[str, Any]:
        try:
            figures = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return figures if isinstance(figures, dict) else {}

    @property
    def _path(self) -> Path:
        return self._folder / "figures.json"
