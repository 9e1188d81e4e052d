"""What experiments/explore_hard.py and experiments/explore_transfer.py share: starts, training,
figures and stored results of tiny models in the environment `Explore`."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback

from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, make, register
from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.envs.exploration.best_play import RULED_OUT
from agentsgym.envs.exploration.env import ExploreEnv, ExploreSettings
from agentsgym.evaluation import rollout_requests
from agentsgym.evaluation.metrics import record, summarize
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import play
from agentsgym.runs import load_config
from agentsgym.types import Agent, Rollout, SamplingParams, Tokenizer
from agentsgym.warm_start.fit import fit, imitate
from agentsgym.warm_start.games import GameStream, best_of_groups
from agentsgym.warm_start.lessons import Batches, make_lessons
from agentsgym.warm_start.settings import WarmStartSettings
from agentsgym.warm_start.tiny import build_model, build_tokenizer

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
ACTION_TOKENS = 8
ROLLOUTS = 32
FITTING = WarmStartSettings(epochs=6, learning_rate=1e-3)
EnvConfig = Mapping[str, Any]


class InformedSettings(ExploreSettings):
    """Those of Explore, and what knowing everything earns."""

    information_reward: float = 0.0


class InformedExplore(ExploreEnv):
    """Explore without noise that also pays for information: a scored episode's first action earns
    `information_reward` times the share of the hidden bits that are known by then. So over a trial
    the free shots are paid for what they add to a potential, the bits known."""

    Settings = InformedSettings
    config: InformedSettings

    def __init__(self, tokenizer: Tokenizer | None = None, env_config: Any = None) -> None:
        super().__init__(tokenizer, env_config)
        least, most = self.reward_range
        self.reward_range = (least, most + self.config.information_reward)

    def _step_episode(self, session_id: str, state: Any, action: str) -> Any:
        after, reward, done, info = super()._step_episode(session_id, state, action)
        if state["steps"] == 0 and self.episode_of(state) >= self.config.free_shots:
            left = [sum(count != RULED_OUT for count in one) for one in state["known"]]
            share = 1 - float(np.mean(np.log(left))) / np.log(self.config.choices)
            reward += self.config.information_reward * share
        return after, reward, done, info


register("InformedExplore", InformedExplore)


def made_start(
    games: Sequence[EnvConfig], folder: Path, *, begun: Path | None = None, **settings: Any
) -> Path:
    """A tiny model that imitated the careless teachers of all `games`, batch by batch in turn.

    It is made as the preset's is, `settings` aside, unless the folder holds it already. With
    `begun` it continues from that model.
    """
    if not (folder / "model.safetensors").is_file():
        torch.set_num_threads(1)
        preset = load_config("explore", {}).warm_start.model_dump(exclude_unset=True)
        config = WarmStartSettings.model_validate(preset | settings).resolved(new_model=True)
        envs = [make("Explore", None, {"explain_actions": False, **game}) for game in games]
        streams = [
            GameStream(
                env,
                env.teacher_agent(seed=k),
                list(env.get_train_dataset()["task_data"]),
                config,
                seed=k,
            )
            for k, env in enumerate(envs)
        ]
        model, tokenizer = loaded(begun) if begun else _built(streams, config)
        for stream, env in zip(streams, envs, strict=True):
            stream.codec = env.with_tokenizer(tokenizer).codec
        imitate(model, _in_turn(streams), config, pad_id=tokenizer.pad_token_id)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def _built(streams: Sequence[GameStream], config: WarmStartSettings) -> tuple[Any, Any]:
    """A new model and a tokenizer for these games."""
    games = [game for stream in streams for game in stream.play(config.tokenizer_games)]
    steps = [step for game in games for episode in game.episodes for step in episode.steps]
    tokenizer = build_tokenizer(
        (text for step in steps for text in (step.observation, step.action)),
        config.vocab_size,
        max_token_length=config.max_token_length,
        pieces=config.tokenizer,
    )
    return build_model(tokenizer, config.model), tokenizer


def _in_turn(streams: Sequence[GameStream]) -> Batches:
    """Batches of several streams in turn."""
    return lambda step: streams[step % len(streams)].batch(step // len(streams))


def loaded(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a start."""
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)


def rows_of(game: EnvConfig, tokenizer: Any = None) -> Any:
    """The training rows of a game."""
    name = "InformedExplore" if "information_reward" in game else "Explore"
    return make(name, tokenizer, {"explain_actions": False, **game}).get_train_dataset()


def train(
    model: Any, tokenizer: Any, game: EnvConfig, updates: int, seed: int, **settings: Any
) -> list[float]:
    """Train the model in place as the preset does, `settings` aside; returns the mean reward of
    each generation."""
    rewards: list[float] = []

    def keep(rollouts: Sequence[Rollout], info: Mapping[str, Any]) -> None:
        rewards.append(float(np.mean([rollout.final_reward for rollout in rollouts])))

    with tempfile.TemporaryDirectory() as folder:
        options = {
            **load_config("explore", {}).train.given,
            "output_dir": folder,
            "max_steps": updates,
            "seed": seed,
            "use_cpu": True,
            "report_to": "none",
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
            "bf16": False,
            **settings,
        }
        trainer = GRPOEnvTrainer(
            model=model,
            args=GRPOEnvConfig(**options),
            train_dataset=rows_of(game, tokenizer),
            processing_class=tokenizer,
            rollout_sink=keep,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return rewards


def own_games(
    model: Any, tokenizer: Any, rows: Any, games: int, *, per_task: int = 1, seed: int = 0
) -> list[Rollout]:
    """Games of the model at temperature 1, on `rows`."""
    engine = EmbeddedEngine(model.eval(), tokenizer, capacity=256)
    agent = DirectOutputAgent(engine, SamplingParams(ACTION_TOKENS, 1.0))
    return _games_of(agent, tokenizer, rows, games, per_task, seed)


def _games_of(
    agent: Agent, tokenizer: Any, rows: Any, games: int, per_task: int, seed: int
) -> list[Rollout]:
    requests = rollout_requests(list(rows), games, rollouts_per_task=per_task, seed=seed)
    return play(requests, agent, EnvPool(tokenizer))


def imitate_successes(
    model: Any,
    tokenizer: Any,
    trials: int,
    *,
    seed: int,
    game: EnvConfig,
    teacher: EnvConfig | None = None,
    paid_only: bool = True,
    fitting: WarmStartSettings = FITTING,
) -> float:
    """Play trials of training tasks in pairs, and imitate the better of each pair if it was paid
    in full, as a warm start with `min_reward: 1` does; returns the mean score. They are the model's
    own trials, or those of the careless teacher with these settings. Without `paid_only` as many
    trials are imitated, whatever they earned."""
    rows = list(rows_of({**game, "train_tasks": max(1024, trials // 2)}, tokenizer))
    if teacher is None:
        games = own_games(model, tokenizer, rows, trials, per_task=2, seed=seed)
    else:
        agent = make("Explore", None, {**game, **teacher}).teacher_agent(seed=seed)
        games = _games_of(agent, tokenizer, rows, trials, 2, seed)
    paid = [played for played in best_of_groups(games) if played.final_reward >= 1]
    if paid:
        chosen = paid if paid_only else games[: len(paid)]
        codec = EnvPool(tokenizer).get(rows[0]).codec
        assert codec is not None
        fit(model, make_lessons(chosen, codec, 0.1, seed), fitting, pad_id=tokenizer.pad_token_id)
    return float(np.mean([played.final_reward for played in games]))


def measure(model: Any, tokenizer: Any, game: EnvConfig, games: int) -> dict[str, Any]:
    """Held-out figures: score, informing actions in free shots, malformed actions."""
    env = make("Explore", tokenizer, {"explain_actions": False, "eval_tasks": games, **game})
    rollouts = own_games(model, tokenizer, env.get_eval_dataset(), games)
    figures = summarize([record(rollout) for rollout in rollouts])
    return {
        "score": round(figures["reward"], 4),
        "looks": round(figures.get("informing/free_shots", figures["informing"]), 4),
        "uses": round(used_share(rollouts), 4),
        "malformed": round(figures["malformed"], 4),
    }


def used_share(rollouts: Sequence[Rollout]) -> float:
    """The mean score of the trials that began with an informing action (without noise, the share
    that used what it saw, if one look tells all)."""
    looked = [r.final_reward for r in rollouts if r.episodes[0].steps[0].info.get("informing")]
    return float(np.mean(looked)) if looked else 0.0


def bests(game: EnvConfig) -> tuple[float, float]:
    """The exact scores of best play without exploring and of best play."""
    env = make("Explore", None, dict(game))
    return env.player(informs=False).value(), env.player().value()


class Store:
    """Results in a JSON file, one line each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """All results so far."""
        results: list[dict[str, Any]] = []
        if self.path.is_file():
            results = json.loads(self.path.read_text(encoding="utf-8"))
        return results

    def add(self, result: Mapping[str, Any]) -> None:
        """One more result; it is printed as well."""
        lines = [json.dumps(entry) for entry in [*self.read(), result]]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
        print(json.dumps(result), flush=True)
