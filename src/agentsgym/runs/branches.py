"""Plays branches of a run's stored rollouts, to measure the effect of their actions
(`evaluation.effects`), and keeps them in the run's folder `replay`."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from agentsgym.envs import ConfigError
from agentsgym.evaluation import Played, assess
from agentsgym.evaluation.effects import Effect, effect_of, same_answer
from agentsgym.rollout import play
from agentsgym.runs.files import RunDirectory
from agentsgym.runs.files.records import SavedEffects
from agentsgym.runs.from_config import make_env
from agentsgym.runs.players import Contestant, SavedEvaluation, contestant, saved_evaluation
from agentsgym.runs.settings import RunConfig
from agentsgym.runs.weights import weights_digest
from agentsgym.types import Rollout, RolloutRequest, session_seed
from agentsgym.types.text import plain

Where = Literal["random", "unlikely"]
_AT_ONCE = 8  # decisions whose branches are played together


class Decision(NamedTuple):
    """Answer number `node` of a stored rollout."""

    rollout: Rollout
    node: int


def decisions_of(rollouts: Sequence[Rollout], where: Where, seed: int) -> list[Decision]:
    """The sampled answers of rollouts that did not fail, those that a branch repeats in its trunk
    alone: in a random order that `seed` draws, or those first that had the lowest probability."""
    found = [
        Decision(rollout, node)
        for rollout in rollouts
        if not rollout.failed
        for node, step in enumerate(rollout.nodes)
        if step.answer is not None and step.sampled and node >= rollout.replayed
    ]
    if where == "unlikely":
        return sorted(found, key=_log_probability)
    return [found[k] for k in np.random.default_rng(seed).permutation(len(found))]


def _log_probability(decision: Decision) -> float:
    _, acts, stop = decision.rollout.at[decision.node].tolist()
    return float(decision.rollout.logprobs[acts:stop].sum())


@dataclass(frozen=True, slots=True)
class Measured:
    """The effects of some of `decisions`, the number of `branches` that they took, with all `steps`
    of the environment in them, and the errors of those that `failed`."""

    effects: list[Effect]
    decisions: int
    steps: int
    branches: int
    failed: list[str]


def measure(
    run: RunConfig,
    root: Path,
    step: int,
    decisions: Sequence[Decision],
    *,
    plays: int,
    budget: int,
    note: Callable[[str], None],
) -> Measured:
    """Measure the effects of decisions of the generation at `step`, one after the other, until the
    branches took `budget` steps of the environment together. The model of `run` plays `plays`
    branches from the state before a decision and, where these give another answer, after it.

    Branches are kept in the run's directory `root` and played once; the effects are stored beside
    them. Raises ConfigError for rollouts of another environment, or a run with top_p or top_k.
    """
    train = run.train.given
    if train.get("top_p", 1.0) != 1.0 or train.get("top_k", 0):
        raise ConfigError(
            "the run samples with train.top_p or train.top_k, which its branches lack"
        )
    temperature = train.get("temperature", 1.0)
    run = run.model_copy(update={"eval": run.eval.model_copy(update={"temperature": temperature})})
    env = make_env(run)
    for other in {one.rollout.env_class_path for one in decisions} - {env.class_path}:
        raise ConfigError(f"a rollout was played in {other}, not in the run's {env.class_path}")
    settings = {
        "env": env.class_path,
        "env_config": env.config.model_dump(),
        "seed": run.seed,
        "temperature": temperature,
        "max_action_tokens": train.get("max_action_tokens"),
        "max_rollout_tokens": run.train.max_rollout_tokens,
        "model": run.model.model_dump(),
        "weights": weights_digest(run.model.path),
        "engine": run.engine.model_dump(),
    }
    digest = hashlib.blake2b(json.dumps(plain(settings)).encode(), digest_size=4).hexdigest()
    folder = RunDirectory(root).replay(step, digest)
    with (
        contestant(str(root), run, seed=run.seed, note=note) as player,
        saved_evaluation(folder, str(root), settings, note) as saved,
    ):
        branches = Branches(player, run, saved)
        effects = [*branches.effects(decisions, plays, budget)]
        kept = saved.rollouts
        saved.finish(Played(assess([*kept.values()]), tuple(kept.values())))
        SavedEffects(effects=[e for e in effects if e.pairs]).write(folder / "effects.json")
    played = [kept[session_id] for session_id in branches.used]
    failed = [one.error for one in played if one.error is not None]
    steps = sum(len(one.steps) for one in played)
    return Measured(effects, len(decisions), steps, len(played), failed)


class Branches:
    """The branches that `player` plays in the environment of `place`, or that are `saved`; `used`
    has the session ids of those that were asked for."""

    def __init__(self, player: Contestant, place: RunConfig, saved: SavedEvaluation) -> None:
        env = make_env(place)
        self._agent, self._pool = player.ready(env, place)
        self._width = env.reward_range[1] - env.reward_range[0]
        self._limited, self._seed = player.limited, place.seed
        self._env: Mapping[str, Any] = {
            "env_class_path": env.class_path,
            "env_config": env.env_config,
        }
        self._known, self._keep = saved.rollouts, saved.add
        self.used: dict[str, None] = {}

    def effects(self, decisions: Sequence[Decision], plays: int, budget: int) -> Iterator[Effect]:
        """The effects of decisions, until the budget is spent."""
        for first in range(0, len(decisions), _AT_ONCE):
            if sum(len(self._known[name].steps) for name in self.used) >= budget:
                return
            some = decisions[first : first + _AT_ONCE]
            before = self._play([(one, range(plays)) for one in some])
            others = [
                [k for k, branch in played.items() if not same_answer(*one, branch)]
                for one, played in zip(some, before, strict=True)
            ]
            after = self._play(
                [
                    (Decision(rollout, node + 1), noises if node + 1 < len(rollout.nodes) else [])
                    for (rollout, node), noises in zip(some, others, strict=True)
                ]
            )
            for one, played, later in zip(some, before, after, strict=True):
                yield effect_of(*one, played, later, self._width)

    def _play(self, asked: Sequence[tuple[Decision, Iterable[int]]]) -> list[dict[int, Rollout]]:
        """The branches that answer instead of each decision, by the number of their noise."""
        requests = [{k: self._request(*one, k) for k in noises} for one, noises in asked]
        every = {r.session_id: r for of_one in requests for r in of_one.values()}
        self.used |= dict.fromkeys(every)
        new = self._limited([r for name, r in every.items() if name not in self._known])
        for branch in play(new, self._agent, self._pool, on_rollout=self._keep):
            self._known[branch.session_id] = branch
        return [{k: self._known[r.session_id] for k, r in one.items()} for one in requests]

    def _request(self, rollout: Rollout, node: int, noise: int) -> RolloutRequest:
        seed = session_seed(self._seed, "branch", rollout.session_id, noise)
        return replace(RolloutRequest.branch(rollout, node, noise, seed), **self._env)
