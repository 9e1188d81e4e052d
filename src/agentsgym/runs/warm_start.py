"""The warm start of a run: its games, and the training on them.

Of a pretrained model it stands in the folder `warm-start` of the run's directory. Each part leaves
its result on disk: figures of the untrained model, the games, the trained model. A
killed warm start continues after the last of them; a finished one is not repeated.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.agents import DirectOutputAgent
from agentsgym.agents.scripted import scripted_agent
from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.envs.dataset import own_tasks
from agentsgym.evaluation import default_cluster
from agentsgym.generation.factory import make_engine
from agentsgym.generation.settings import EngineParts
from agentsgym.runs.evaluate import (
    PROBE,
    PROBE_ERROR,
    PROBE_REWARD,
    plays_better,
    probe,
    signal_text,
)
from agentsgym.runs.files import (
    DamagedFile,
    OtherFormat,
    RolloutWriter,
    RunDirectory,
    read_file,
    read_rollouts,
)
from agentsgym.runs.files.directory import read_bytes, write_text
from agentsgym.runs.from_config import make_env, run_tasks
from agentsgym.runs.parts import Progress
from agentsgym.runs.resuming import save_model
from agentsgym.runs.settings import RunConfig
from agentsgym.types import Agent, Rollout, SamplingParams
from agentsgym.warm_start.games import best_of_groups, play_rounds, rerendered
from agentsgym.warm_start.lessons import make_lessons
from agentsgym.warm_start.players import (
    LONGER,
    MORE_GAMES,
    Figures,
    problem,
    scripted_players,
    side_by_side,
)
from agentsgym.warm_start.players import figures as player_figures
from agentsgym.warm_start.settings import CHAT, ROLLOUTS, SCRIPTED, WarmStartSettings

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer
    from agentsgym.warm_start.new_model import WarmStartResult

GAMES, EVALUATED = "warmstart", "warmstarted"
"""Phases of its rollouts: the games to imitate, and the evaluation of the warm-started model."""

_MOST_COMPARED = 100_000  # training rows
_BAD = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def new_model(config: RunConfig, progress: Progress) -> "WarmStartResult":
    """The model `tiny`, newly made from games of the environment's teacher. Raises ConfigError if
    there is none."""
    from agentsgym.warm_start.new_model import warm_start

    if config.model.lora is not None:
        raise ConfigError("model.lora needs a model that exists; 'tiny' is trained as a whole")
    settings = config.warm_start_settings()
    env, teacher = _games(config, settings, {})
    first = _games(config, settings, settings.first_env_config) if settings.first_steps else None
    progress.note(
        f"before its first update the warm start plays {config.warm_start.tokenizer_games:,} games "
        "for the tokenizer, and more to compare players"
    )
    made = warm_start(
        env,
        teacher,
        config.warm_start,
        settings.seed,
        tasks=_of_file(config),
        first=first,
        progress=progress.warm_start,
    )
    seconds = config.warm_start.max_seconds
    end = f", for no more of which there was time (max_seconds={seconds:g})" if made.late else ""
    progress.note(f"the warm start had {made.figures['steps']:.0f} updates{end}")
    longer = "more time (warm_start.max_seconds)" if made.late else LONGER
    _show(made.players, progress, longer, copies=config.warm_start.model.induction_heads > 0)
    return made


def _of_file(config: RunConfig) -> list[dict[str, Any]] | None:
    """The tasks of the run's environment in the file of training tasks; None if there are none."""
    if config.data.train is None:
        return None
    env = make_env(config)
    return own_tasks(env, run_tasks(env, config.data, "train")) or None


def _show(
    players: Mapping[str, Figures],
    progress: Progress,
    longer: str,
    *,
    copies: bool = False,
    new: bool = True,
) -> None:
    """Show the players side by side, and warn if the imitator does not reach its teacher."""
    progress.note(side_by_side(players))
    if wrong := problem(players, longer, copies=copies, new=new):
        progress.note(f"warning: {wrong}")


def _games(
    config: RunConfig, settings: WarmStartSettings, changes: Mapping[str, Any]
) -> tuple[MultistepEnv, Agent]:
    """The environment of the games that a new model imitates, and who plays it."""
    env_config = {**config.env_config, **settings.env_config, **changes}
    env = make_env(config.model_copy(update={"env_config": env_config}))
    try:
        return env, _teacher(settings, env)
    except ConfigError as error:
        raise ConfigError(
            f"model: tiny imitates a player first, but {error}; or let 'model' name a model"
        ) from error


def _teacher(settings: WarmStartSettings, env: MultistepEnv) -> Agent:
    """The environment's agent that is imitated. Raises ConfigError if it has none."""
    try:
        return scripted_agent(env, str(settings.source), seed=settings.seed)
    except ConfigError as error:
        raise ConfigError(f"warm_start.source: {error}") from error


class WarmStart:
    """The warm start of one run's pretrained model. The constructor checks the settings and touches
    no file; of a run that `resumes`, the source is needed only for games that are not stored."""

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
        self._settings = config.warm_start_settings()
        # The teacher is what it chooses: another source was given since.
        is_teacher = config.warm_start.source == "teacher"
        self._chosen_by_auto = is_teacher and "warm_start.source" in config.chosen
        self._env = env
        self._rows: Any = rows
        self._held_out = held_out
        self._progress = progress
        self._directory = RunDirectory(config.directory)
        self._folder = self._directory.warm_start
        if resumes and self._has_games:
            return
        if self._settings.source == ROLLOUTS:
            _training_files(str(self._settings.run))
        elif self._settings.source != CHAT:
            _teacher(self._settings, self._env)

    evaluated = EVALUATED

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

    def carry_out(self, trainer: "GRPOEnvTrainer", write: RolloutWriter) -> dict[str, Any]:
        """Train the trainer's model in place, save it, and return the figures. All ranks must call
        it; the first one plays the games, learns from them, and writes."""
        self._keep_once(trainer, "before", lambda: self._probe(trainer, write, 0))
        ranks = trainer.ranks
        if not ranks.first(lambda: self.finished):
            ranks.first(lambda: self._keep("training", self._train(trainer, write)))
            ranks.copy_weights(trainer.accelerator.unwrap_model(trainer.model))
            self._set_reference(trainer)
            save_model(trainer, self.model)
        trainer.sync.forget()
        figures = ranks.first(self._figures)
        if not figures.get("training", True):  # the model is as it was before
            return figures
        self._keep_once(trainer, "after", lambda: self._probe(trainer, write, 1))
        return ranks.first(self._figures)

    def _probe(self, trainer: "GRPOEnvTrainer", write: RolloutWriter, step: int) -> dict[str, Any]:
        """Figures of the model's own games."""
        tasks = self._settings.probe_tasks
        if not tasks:
            return {}
        figures, rollouts = probe(trainer, self._rows, tasks, self._settings.seed)
        rank = trainer.ranks.rank
        write(rollouts, {"phase": PROBE, "step": step, "rank": rank, "advantages": None})
        when = "after" if step else "before"
        self._progress.note(f"{when} the warm start: {signal_text(figures)}")
        if step:
            trainer.ranks.first(lambda: self._compare(rollouts))
        return figures

    def _compare(self, rollouts: Sequence[Rollout]) -> None:
        """Show and keep the model's figures beside those of other players. Games that others
        recorded, or play for a price, are the teacher's figures as they are."""
        if self._settings.source in SCRIPTED:
            tasks = [one.task_data for one in rollouts]
            players = scripted_players(self._env, _teacher(self._settings, self._env), tasks)
        else:
            players = {"teacher": player_figures(list(read_rollouts(self._directory.root, GAMES)))}
        players["imitator"] = player_figures(rollouts)
        self._keep("players", {name: asdict(one) for name, one in players.items()})
        _show(players, self._progress, MORE_GAMES, new=False)

    # -- the games ------------------------------------------------------------------------------

    @property
    def _has_games(self) -> bool:
        """Whether all games to imitate are stored, or have been learned from."""
        return self.finished or self._figures().get("games") is not None

    def _games(self, trainer: "GRPOEnvTrainer", write: RolloutWriter) -> list[Rollout]:
        """The stored games, completed if the run was killed while they were played."""
        if not self._has_games:
            files = self._directory.rollout_files()
            done = [sum(1 for _ in read_file(path)) for name, _, path in files if name == GAMES]
            for number, rollouts in enumerate(self._new_games(trainer, done), len(done)):
                write(rollouts, {"phase": GAMES, "step": number, "advantages": None})
            games = list(read_rollouts(self._directory.root, GAMES))
            reward = sum(rollout.final_reward for rollout in games) / max(1, len(games))
            self._keep("games", {"games": len(games), "reward": reward})
        return list(read_rollouts(self._directory.root, GAMES))

    def _new_games(
        self, trainer: "GRPOEnvTrainer", done: Sequence[int]
    ) -> Iterator[Sequence[Rollout]]:
        """The games in parts, to be kept as they come, without those that are `done`."""
        if self._settings.source == ROLLOUTS:
            yield self._recorded_games(trainer)
            return
        envs, most = trainer.collector.envs, trainer.args.max_rollout_tokens
        with self._player() as agent:
            yield from play_rounds(
                self._rows, agent, envs, self._settings, max_rollout_tokens=most, done=done
            )

    def _recorded_games(self, trainer: "GRPOEnvTrainer") -> list[Rollout]:
        """At most `games` games of another run, those with most reward: the best of each group, of
        equal ones the latest. They may come from anybody: only their texts are used, and what is
        damaged or too long is left out with a note. Raises ConfigError if none remains."""
        settings, note, selected = self._settings, self._progress.note, self._selection()
        codec, most = self._codec(trainer), trainer.args.max_rollout_tokens
        folder, games, bad = str(settings.run), list[Rollout](), 0
        by_step = groupby(_training_files(folder), key=itemgetter(0))
        for files in reversed([[path for _, path in files] for _, files in by_step]):
            played = list[Rollout]()
            for path in files:
                try:
                    played += [one.rollout for one in read_file(path) if selected(one.rollout)]
                except (DamagedFile, OtherFormat) as error:
                    note(f"warm_start.run: {error}; this file is left out")
            for game in best_of_groups(played):  # a group may continue in the next file
                try:
                    games.append(rerendered(game, codec, most))
                except _BAD:
                    bad += 1
        if bad:
            of = bad + len(games)
            note(f"warm_start.run: {bad} of {of} games are left out: damaged or too long")
        if not games:
            least = settings.min_reward
            raise ConfigError(
                f"warm_start.run: {folder} holds no game of this environment's training tasks"
                + ("" if least is None else f" with a reward of {least:g}")
            )
        return sorted(games, key=lambda game: -game.final_reward)[: settings.games]

    def _selection(self) -> Callable[[Rollout], bool]:
        """Selects games of this environment with enough reward, but none on a task that only the
        evaluation has. Of a large training set not every row is read: then none on any task of the
        evaluation."""
        held_out = {default_cluster(row["task_data"]) for row in self._held_out}
        if len(self._rows) <= _MOST_COMPARED:
            held_out -= {default_cluster(row["task_data"]) for row in self._rows}
        path, least = self._env.class_path, self._settings.min_reward

        def selected(game: Rollout) -> bool:
            reward = game.final_reward
            enough = math.isfinite(reward) and (least is None or reward >= least)
            is_ours = not game.failed and game.env_class_path == path
            return enough and is_ours and default_cluster(game.task_data) not in held_out

        return selected

    @contextmanager
    def _player(self) -> Iterator[Agent]:
        settings = self._settings
        if settings.engine is None:
            yield _teacher(settings, self._env)
            return
        engine = make_engine(settings.engine.as_engine(), EngineParts(), training=False)
        sampling = SamplingParams(settings.max_answer_tokens, settings.temperature)
        with closing(engine):
            yield DirectOutputAgent(engine, sampling, seed=settings.seed)

    # -- training -------------------------------------------------------------------------------

    def _codec(self, trainer: "GRPOEnvTrainer") -> Any:
        return trainer.collector.envs.get(self._rows[0]).codec

    def _train(self, trainer: "GRPOEnvTrainer", write: RolloutWriter) -> dict[str, Any]:
        import torch

        from agentsgym.warm_start.fit import fit

        settings, codec = self._settings, self._codec(trainer)
        games = self._games(trainer, write)
        own, imitated = self._figures()["before"], player_figures(games)
        if plays_better(own, imitated):
            better = (
                f"the model earned {own[PROBE_REWARD]:.3f} ± {own[PROBE_ERROR]:.3f} in its own "
                f"games, more than the games to imitate ({imitated.reward:.3f})"
            )
            if self._chosen_by_auto:
                self._progress.note(f"{better}, so the warm start is left out")
                return {}
            self._progress.note(f"{better}, and may unlearn how: warm_start.source=null")
        try:
            lessons = make_lessons(games, codec, settings.held_out_share, settings.seed)
        except ValueError as error:
            raise ConfigError(f"warm_start.source: {error}") from None
        accelerator = trainer.accelerator
        half = accelerator.mixed_precision == "fp16"
        result = fit(
            accelerator.unwrap_model(trainer.model),
            lessons,
            settings,
            pad_id=trainer.tokenizer.pad_token_id,
            autocast=accelerator.autocast,
            scaler=torch.amp.GradScaler(accelerator.device.type, enabled=half),
            progress=self._progress.warm_start,
        )
        counts = {"examples": len(lessons.train), "held_out_examples": len(lessons.held_out)}
        return counts | {"targets": lessons.targets} | asdict(result)

    @staticmethod
    def _set_reference(trainer: "GRPOEnvTrainer") -> None:
        """The reference of KL is the warm-started model, as in a resumed run, which loads it."""
        from agentsgym.training.reference import become_reference

        if trainer.args.beta:
            unwrap = trainer.accelerator.unwrap_model
            reference = None if trainer.ref_model is None else unwrap(trainer.ref_model)
            become_reference(unwrap(trainer.model), reference)

    # -- figures on disk ------------------------------------------------------------------------

    def _keep_once(
        self, trainer: "GRPOEnvTrainer", name: str, make: Callable[[], dict[str, Any]]
    ) -> None:
        """Make a part's figures on all ranks, and store them, unless they are stored."""
        first = trainer.ranks.first
        if not first(lambda: isinstance(self._figures().get(name), dict)):
            values = make()
            first(lambda: self._keep(name, values))

    def _keep(self, name: str, values: dict[str, Any]) -> None:
        write_text(self._path, json.dumps(self._figures() | {name: values}, indent=2) + "\n")

    def _figures(self) -> dict[str, Any]:
        try:
            figures = json.loads(read_bytes(self._path))
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return figures if isinstance(figures, dict) else {}

    @property
    def _path(self) -> Path:
        return self._folder / "figures.json"


def _training_files(folder: str) -> list[tuple[int, Path]]:
    """Step and file of a run's training rollouts. Raises ConfigError if there are none."""
    files = RunDirectory(Path(folder)).rollout_files()
    generations = [(step, path) for phase, step, path in files if phase == "train"]
    if not generations:
        raise ConfigError(f"warm_start.run: {folder} holds no training rollouts of a run")
    return generations
