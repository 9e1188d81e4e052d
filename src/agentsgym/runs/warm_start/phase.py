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
from agentsgym.runs.config import RunConfig
from agentsgym.runs.files import RolloutWriter, RunDirectory, read_rollouts
from agentsgym.runs.files.atomic import DamagedFile, remove, replacing, write_text
from agentsgym.runs.files.shard import read_shard, remove_shard
from agentsgym.runs.progress import Progress
from agentsgym.runs.signal_check import signal_text
from agentsgym.runs.warm_start.probe import probe
from agentsgym.runs.warm_start.settings import WarmStartSettings, settings_of
from agentsgym.runs.warm_start.sources import Surroundings, check_source, source_games
from agentsgym.types import Rollout

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer

GAMES, PROBE, EVALUATED = "warmstart", "probe", "warmstarted"
"""Phases of its rollouts: the games to imitate, the model's own games on training tasks before and
after, and the evaluation of the warm-started model."""


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
        self._settings: WarmStartSettings = settings_of(config.warm_start)
        self._env = env
        self._rows: Sequence[Mapping[str, Any]] = (
            rows if hasattr(rows, "__getitem__") else list(rows)
        )
        self._held_out = held_out
        self._progress = progress
        self._directory = RunDirectory(config.directory)
        self._folder = self._directory.warm_start
        if not (resumes and self._has_games):
            check_source(self._settings.games, env)

    def __str__(self) -> str:
        games = self._settings.games
        return f"{games.games} games, source {games.source}"

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
        games = list(read_rollouts(self._directory.root, GAMES))
        vocabulary = len(trainer.tokenizer)
        if any(not 0 <= i < vocabulary for r in games for row in r.rows for i in row.token_ids):
            raise DamagedFile(f"the games in {self._directory.rollouts} are of another tokenizer")
        return games

    def _stored_parts(self) -> list[int]:
        """Number of games in each stored round; a damaged round and those after it are removed."""
        shards = [(step, path) for phase, step, path in self._directory.shards() if phase == GAMES]
        done: dict[int, int] = {}
        for step, path in shards:
            try:
                done[step] = done.get(step, 0) + sum(1 for _ in read_shard(path))
            except DamagedFile as error:
                self._progress.note(f"{error}; these games are played again")
                done.pop(step, None)
                for later, remaining in shards:
                    if later >= step:
                        remove_shard(remaining)
                break
        return list(done.values())

    def _new_games(
        self, trainer: "GRPOEnvTrainer", done: Sequence[int]
    ) -> Iterator[Sequence[Rollout]]:
        return source_games(
            self._settings.games,
            Surroundings(
                self._env,
                self._rows,
                self._held_out,
                trainer.collector.envs,
                self._settings.training.seed,
                trainer.args.max_rollout_tokens,
                self._progress.note,
            ),
            done,
        )

    # -- training -------------------------------------------------------------------------------

    def _train(self, trainer: "GRPOEnvTrainer", games: Sequence[Rollout]) -> dict[str, Any]:
        from agentsgym.training.warm_start.fitting import fit
        from agentsgym.training.warm_start.lessons import make_lessons

        config = self._settings.training
        codec = trainer.collector.envs.get(self._rows[0]).codec
        assert codec is not None
        try:
            lessons = make_lessons(games, codec, config.held_out_share, config.seed)
        except ValueError as error:
            raise ConfigError(f"warm_start.source: {error}") from None
        result = fit(
            trainer.accelerator.unwrap_model(trainer.model),
            lessons,
            config,
            pad_id=trainer.tokenizer.pad_token_id,
            folder=self._folder,
            autocast=trainer.accelerator.autocast,
            progress=self._progress.warm_start,
        )
        counts = {"examples": len(lessons.train), "held_out_examples": len(lessons.held_out)}
        return counts | {"targets": lessons.targets} | asdict(result)

    def _set_reference(self, trainer: "GRPOEnvTrainer") -> None:
        """The reference of KL is the warm-started model, as in a resumed run, which loads it."""
        from agentsgym.training.reference_model import become_reference

        if trainer.args.beta:
            unwrap = trainer.accelerator.unwrap_model
            reference = None if trainer.ref_model is None else unwrap(trainer.ref_model)
            become_reference(unwrap(trainer.model), reference)

    # -- the model's own games ------------------------------------------------------------------

    def _probe(self, trainer: "GRPOEnvTrainer", write: RolloutWriter, step: int) -> dict[str, Any]:
        tasks = self._settings.games.probe_tasks
        if not tasks:
            return {}
        figures, rollouts = probe(trainer, self._rows, tasks, self._settings.training.seed)
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
            found = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def _path(self) -> Path:
        return self._folder / "figures.json"
