"""The model of a training step's time (`step_time.py`) against whole trainings.

    python experiments/step_time_check.py [--steps N]

One synchronous training of a tiny model by `GRPOEnvTrainer` gives the parts' rates: a server of
our own (`serve-model`) samples, our thread records, the environment answers, weights are passed on,
the trainer learns. From these the step's time of other trainings is predicted: with other numbers
of groups, longer rows, a slower environment, and sampling ahead of learning (`max_staleness`).
Every process has one thread for its arithmetic.

`predicted_over_measured` has a ratio per setting, by the formula for an engine with as many places
as sessions are open, which this one is; `if_playing_overlaps` by the one for larger servers. All
times are wall time, so the figures mean nothing beside other work. The last line is one JSON
object.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import common
import torch
from common import NEW_TOKENS
from step_time import StepTime
from transformers import TrainerCallback

from agentsgym import register

SIZE = 8  # rollouts of a group
PLACES = 16


@dataclass(frozen=True)
class Setting:
    """A training: `groups` of SIZE rollouts of `turns` turns per step; the environment works for
    `env_seconds` longer per step."""

    name: str
    groups: int = 2
    turns: int = 10
    env_seconds: float = 0.0
    staleness: int = 0

    @property
    def steps(self) -> int:
        """Environment steps of an optimizer step."""
        return self.groups * SIZE * self.turns


BASE = Setting("synchronous")
SETTINGS = (
    Setting("twice the groups", groups=4),
    Setting("twice the turns", turns=20),
    Setting("a slower environment", env_seconds=2e-3),
    Setting("max_staleness 1", staleness=1),
    Setting("max_staleness 2", staleness=2),
    Setting("max_staleness 1, twice the turns", turns=20, staleness=1),
    Setting("max_staleness 2, twice the groups", groups=4, staleness=2),
    Setting("max_staleness 2, a slower environment", env_seconds=2e-3, staleness=2),
)


class WorkingEnv(common.TalkEnv):
    """A `TalkEnv` that computes for `task_data["seconds"]` at each step. `seconds` is all time that
    its steps took; the time of its prompts counts as our thread's."""

    def __init__(self, tokenizer: Any = None, env_config: Any = None) -> None:
        super().__init__(tokenizer, env_config)
        self.seconds = 0.0

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        return super()._initialize_episode(session_id, task_data) | {"work": task_data["seconds"]}

    def _step_episode(
        self, session_id: str, state: dict[str, Any], action: str
    ) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        start = time.thread_time()
        while time.thread_time() < start + state["work"]:
            pass
        after, *rest = super()._step_episode(session_id, state, action)
        self.seconds += time.thread_time() - start
        return after | {"work": state["work"]}, *rest  # type: ignore[return-value]


register("experiments/Working", WorkingEnv)


class Clock(TrainerCallback):  # type: ignore[misc]
    """When each optimizer step ended, and what the parts took since the one before: seconds on the
    wall of the generation (`playing`) and of the weights, and CPU seconds of our thread and of the
    environment in it."""

    def __init__(self, trainer: Any, env: WorkingEnv) -> None:
        self.ends: list[float] = []
        self.parts: list[dict[str, float]] = []
        self._env, self._env_seconds = env, 0.0
        self._syncs = common.time_calls(trainer.sync, "push")
        self._played = timed_generations(trainer.collector)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.perf_counter())
        wall, cpu = self._played[-1] if self._played else (0.0, 0.0)
        worked, self._env_seconds = self._env.seconds - self._env_seconds, self._env.seconds
        self.parts.append(
            {"playing": wall, "cpu": cpu, "environments": worked, "weights": self._syncs[-1]}
        )


def timed_generations(collector: Any) -> list[tuple[float, float]]:
    """A list that gets the seconds of each synchronous generation, on the wall and of this thread's
    CPU time."""
    play, times = collector.play, list[tuple[float, float]]()

    def timed(*given: Any) -> Any:
        wall, cpu = time.perf_counter(), time.thread_time()
        rollouts = play(*given)
        times.append((time.perf_counter() - wall, time.thread_time() - cpu))
        return rollouts

    collector.play = timed
    return times


@dataclass(frozen=True)
class Measured:
    """Means over the optimizer steps of a training that count: seconds of a whole `step`, and of
    its parts as in `StepTime`; where generations are played ahead, only `step` and the weights."""

    step: float
    parts: StepTime


def trained(setting: Setting, steps: int, url: str, *, actors: int) -> Measured:
    """Train, and measure `steps` optimizer steps after the first ones."""
    warm = 2 + setting.staleness
    trainer, env = trainer_of(setting, warm + steps + setting.staleness, url, actors)
    clock = Clock(trainer, env)
    trainer.add_callback(clock)
    with closing(trainer.collector.engine):
        trainer.train()
    ends = clock.ends[warm - 1 : warm + steps]
    mean = {
        name: sum(part[name] for part in clock.parts[warm : warm + steps]) / steps
        for name in clock.parts[0]
    }
    step = (ends[-1] - ends[0]) / steps
    parts = StepTime(
        sampling=mean["playing"] - mean["cpu"],
        environments=mean["environments"],
        threads=mean["cpu"] - mean["environments"],
        weights=mean["weights"],
        learning=step - mean["playing"] - mean["weights"],
    )
    return Measured(step, parts)


def trainer_of(setting: Setting, steps: int, url: str, actors: int) -> tuple[Any, WorkingEnv]:
    """A trainer with the server at `url`, which plays itself or by actors on Ray; and its
    environment."""
    from agentsgym import GRPOEnvConfig, GRPOEnvTrainer, task_dataset
    from agentsgym.envs import make

    torch.manual_seed(0)
    model, tokenizer = common.tiny()
    games = common.make_games(tokenizer, setting.groups, setting.turns)
    rows = [row["task_data"] | {"seconds": setting.env_seconds} for row in common.rows_of(games)]
    env = make("experiments/Working", tokenizer, {"max_steps_per_episode": setting.turns})
    options = common.trainer_options() | {
        "max_steps": steps,
        "num_generations": SIZE,
        "per_device_train_batch_size": setting.groups * SIZE,
        "max_action_tokens": NEW_TOKENS,
        "engine": {"urls": [url], "capacity": PLACES},
        "ray": {"workers": actors},
        "max_staleness": setting.staleness,
    }
    data = task_dataset(env, rows)
    trainer = GRPOEnvTrainer(model, GRPOEnvConfig(**options), data, None, tokenizer, envs=[env])
    return trainer, env


def serve() -> None:
    """Be `agentsgym serve-model` of the model, until standard input ends."""
    from agentsgym.generation import EmbeddedEngine
    from agentsgym.generation.serving.listening import ServerThread
    from agentsgym.runs.serve_model import application

    model, tokenizer = common.tiny()
    app, _ = application(EmbeddedEngine(model, tokenizer, capacity=PLACES), "tiny")
    with closing(ServerThread(app)) as server:
        print(server.url, flush=True)
        sys.stdin.read()


@contextmanager
def serving() -> Iterator[str]:
    """The URL of a server in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(60)


@contextmanager
def cluster() -> Iterator[None]:
    """A cluster of Ray, to which this process is connected."""
    import ray

    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    try:
        yield
    finally:
        ray.shutdown()


def predicted(setting: Setting, base: StepTime) -> StepTime:
    """The parts of a step in another setting, from the rates of the base's parts: a token costs as
    much as there, and so does an environment step but for the work that the setting adds."""
    more = setting.steps / BASE.steps
    return StepTime(
        sampling=base.sampling * more,
        environments=base.environments * more + setting.steps * setting.env_seconds,
        threads=base.threads * more,
        weights=base.weights,
        learning=base.learning * more,
    )


def seconds(setting: Setting, parts: StepTime) -> float:
    """A step's seconds by the model."""
    return parts.ahead if setting.staleness else parts.synchronous


def compared(settings: Sequence[Setting], steps: int, url: str, actors: int) -> dict[str, Any]:
    """Predicted over measured seconds, by setting."""
    base = trained(BASE, 2 * steps, url, actors=actors)
    print(f"{BASE.name}: {base}", flush=True)
    table: dict[str, dict[str, float]] = {
        "seconds": {BASE.name: round(base.step, 3)},
        "predicted": {},
        "predicted_over_measured": {},
        "if_playing_overlaps": {},
    }
    for setting in settings:
        measured, parts = (
            trained(setting, steps, url, actors=actors),
            predicted(setting, base.parts),
        )
        guess = seconds(setting, parts.in_turns)
        table["seconds"][setting.name] = round(measured.step, 3)
        table["predicted"][setting.name] = round(guess, 3)
        table["predicted_over_measured"][setting.name] = round(guess / measured.step, 2)
        overlapping = seconds(setting, parts) / measured.step
        table["if_playing_overlaps"][setting.name] = round(overlapping, 2)
        print(f"{setting.name}: predicted {parts}, measured {measured}", flush=True)
    parts = {name: round(value, 4) for name, value in asdict(base.parts).items() if name != "added"}
    return {"parts": parts} | table


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5, help="optimizer steps that count")
    parser.add_argument("--apart", action="store_true", help="an actor on Ray plays")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", help="settings, by their names")
    args = parser.parse_args(given)
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}  # of the engine
    torch.set_num_threads(1)
    if args.serve:
        serve()
        return
    settings = [s for s in SETTINGS if args.only is None or s.name in args.only]
    with serving() as url, cluster() if args.apart else nullcontext():
        table = compared(settings, args.steps, url, int(args.apart))
    common.finish({"device": common.device_name("cpu")} | table)


if __name__ == "__main__":
    main()
