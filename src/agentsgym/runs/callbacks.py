"""What a run adds to the trainer as callbacks: metrics, ends, checkpoints by the clock, a look for
faults, best weights; and what signals do meanwhile."""

import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import TrainerCallback

from agentsgym.runs.evaluate import training_games
from agentsgym.runs.files import MetricsFile, RolloutWriter
from agentsgym.runs.files.directory import replacing
from agentsgym.runs.from_config import NO_LIMIT
from agentsgym.runs.parts import Progress, StepReport
from agentsgym.runs.processes import handled

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer
    from agentsgym.training.ranks import Ranks

Note = Callable[[str], None]
Finding = Mapping[str, Any]
Examine = Callable[[Path], Sequence[Finding]]
"""Returns what goes wrong in a run's directory: the faults of the report `doctor` as dicts."""

# A message of the Hugging Face trainer at the end of training; the summary has its content.
_FINAL = "train_runtime"
_EXAMINED_AT = 0.5  # share of the run: half of the time is left, and what does not learn has shown
WINDOW = 4
"""Training steps whose mean reward says how good the weights after them are."""
GAMES = 256
"""Training games that the kept and the last weights play at the end."""


class RunCallback(TrainerCallback):  # type: ignore[misc]
    """Ends training, saves checkpoints by the clock, and examines the run once, after half of it.

    Training stops at the end of a generation once a stop was requested or `max_seconds` of RL are
    used up; every stop, also another callback's, saves a checkpoint. Others are saved, also at the
    end of a generation, once `checkpoint_seconds` have passed since the last one, or since the
    beginning; less often where that would take more than a tenth of the time (None: none).
    Rank 0's clock decides. `seconds` returns those of RL so far, `find` what goes wrong.
    `requested` is what this rank was asked for, and `reason` why training stops, on all ranks.
    """

    def __init__(
        self,
        ranks: "Ranks",
        updates_per_generation: int,
        seconds: Callable[[], float],
        *,
        max_seconds: float | None = None,
        checkpoint_seconds: float | None = None,
        find: Callable[[], Sequence[Finding]] = lambda: (),
        note: Note = lambda text: None,
    ) -> None:
        self._ranks, self._updates = ranks, updates_per_generation
        self._seconds, self._max_seconds = seconds, max_seconds or math.inf
        self._checkpoint_seconds = math.inf if checkpoint_seconds is None else checkpoint_seconds
        self._saved_at = time.monotonic()
        self._asked_at: float | None = None
        self._find, self._note, self._examined = find, note, False
        self.requested: str | None = None
        self.reason: str | None = None

    def request(self, reason: str) -> None:
        """Request a stop of all ranks; the first reason is kept."""
        self.requested = self.requested or reason

    def share_used(self) -> float:
        """The used fraction of the time, at most 1."""
        return min(1.0, self._seconds() / self._max_seconds)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to measure the time."""
        self._saved_at = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Obey a request, but not within a generation, which would have to be played again."""
        if self.share_used() >= 1.0:
            self.request("max_seconds")
        share = max(self.share_used(), state.global_step / max(1, state.max_steps))
        due = time.monotonic() - self._saved_at >= self._checkpoint_seconds
        asked = self._ranks.gather([(self.requested, share >= _EXAMINED_AT, due)])
        _, examined, due = asked[0]
        if state.global_step % self._updates == 0:
            self.reason = next((request for request, *_ in asked if request), None)
            control.should_save |= due
        control.should_training_stop |= self.reason is not None
        control.should_save |= control.should_training_stop
        if examined and not self._examined:
            self._examined = True
            for one in self._ranks.first(self._find):
                self._note(f"{one['title']} ({one['evidence'][0]}) Next: {one['next']}")
        self._asked_at = time.monotonic()
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure how long the checkpoint took."""
        self._saved_at = time.monotonic()
        if self._asked_at is not None:
            longest = 10 * (self._saved_at - self._asked_at)
            self._checkpoint_seconds = max(self._checkpoint_seconds, longest)


def ctrl_c_stops(stop: RunCallback, note: Note) -> AbstractContextManager[None]:
    """Inside the block, Ctrl-C and SIGTERM request a stop, and Ctrl-C after that interrupts. A
    second SIGTERM does not: a cluster's scheduler signals this process and the one that forwards
    signals to it."""

    def handle(number: int, frame: Any) -> None:
        if stop.requested is None:
            stop.request("interrupted")
            note("stopping after this step; press Ctrl-C again to abort at once")
        elif number != signal.SIGTERM:
            raise KeyboardInterrupt

    return handled(handle, signal.SIGINT, signal.SIGTERM)


def sigterm_interrupts() -> AbstractContextManager[None]:
    """Inside the block, SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that a run that is
    killed while it loads or evaluates still writes its end."""

    def handle(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    return handled(handle, signal.SIGTERM)


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Writes one line per logged optimizer step and per evaluation, with the time and the tokens of
    all ranks. Those of a training line are added to `logs` too, so that callbacks after this one,
    which send them to trackers, have them. Rank 0 writes."""

    def __init__(
        self,
        ranks: "Ranks",
        metrics: MetricsFile,
        writer: RolloutWriter,
        progress: Progress,
        seconds: Callable[[], float],
        time_share: Callable[[], float],
    ) -> None:
        self._ranks = ranks
        self._metrics = metrics
        self._writer = writer
        self._progress = progress
        self._seconds = seconds
        self._time_share = time_share
        self._last, self._tokens = 0.0, 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to measure the rate of tokens."""
        self._last, self._tokens = self._seconds(), self._all_tokens()

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Write a line; report it if it belongs to a training step."""
        if not logs or _FINAL in logs:
            return
        phase = "eval" if any(name.startswith("eval_") for name in logs) else "train"
        values = dict(logs) | {"seconds": self._seconds()}
        if phase == "train":
            values["total_agent_tokens"] = tokens = self._all_tokens()
            values["tokens_per_second"] = self._rate(tokens)
            logs.update(values)
        if self._ranks.rank == 0:
            self._metrics.append(phase, state.global_step, values)
        if phase == "train":
            self._progress.step(self._report(state, values))

    def _all_tokens(self) -> int:
        return sum(self._ranks.gather([self._writer.agent_tokens]))

    def _rate(self, tokens: int) -> float:
        now = self._seconds()
        rate = (tokens - self._tokens) / max(now - self._last, 1e-9)
        self._last, self._tokens = now, tokens
        return rate

    def _report(self, state: Any, values: Mapping[str, Any]) -> StepReport:
        step, most = state.global_step, state.max_steps
        share = max(step / max(most, 1), self._time_share())
        return StepReport(
            step, None if most >= NO_LIMIT else most, share, values["seconds"], values
        )


class BestWeights(TrainerCallback):  # type: ignore[misc]
    """Keeps a copy of the trained weights after the `WINDOW` steps with the highest mean reward.
    Each checkpoint writes it to `path`, from which a resumed run goes on. All ranks hold one."""

    def __init__(self, trainer: "GRPOEnvTrainer", path: Path) -> None:
        self._trainer, self._path = trainer, path
        self._reward, self._step = -math.inf, 0
        self._weights: dict[str, torch.Tensor] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Go on with what was kept up to the checkpoint."""
        if state.global_step and self._path.is_file():
            with safe_open(self._path, "pt") as stored:
                said = stored.metadata()
                if int(said["step"]) <= state.global_step:
                    self._step, self._reward = int(said["step"]), float(said["reward"])
                    self._weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the present weights if the last steps earned more than any others."""
        lines = (line["reward"] for line in reversed(state.log_history) if "reward" in line)
        rewards = [*islice(lines, WINDOW)]
        if len(rewards) == WINDOW and fmean(rewards) > self._reward:
            self._reward, self._step = fmean(rewards), state.global_step
            self._weights = self._present()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write what is kept."""
        if self._weights and self._trainer.ranks.rank == 0:
            with replacing(self._path) as part:
                said = {"step": str(self._step), "reward": repr(self._reward)}
                save_file(self._weights, part, said)

    def choose(
        self, rows: Sequence[Mapping[str, Any]], seed: int, note: Callable[[str], None]
    ) -> dict[str, float]:
        """Leave the kept weights in the trainer if they earn more than the last ones in the same
        training games; return what both earn. All ranks must call it."""
        if not self._weights or self._step == self._trainer.state.global_step:
            return {}
        last, ended = self._present(), self._earned(rows, seed)
        self._load(self._weights)
        kept = self._earned(rows, seed)
        if kept > ended:
            note(
                f"the weights after step {self._step} are kept: they earn {kept:.3f} in {GAMES} "
                f"training games, and the last ones {ended:.3f}"
            )
        else:
            self._load(last)
        return {"step": self._step, "kept": kept, "last": ended}

    def _present(self) -> dict[str, torch.Tensor]:
        return {name: one.detach().to("cpu", copy=True) for name, one in self._trained()}

    def _load(self, weights: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, one in self._trained():
                one.copy_(weights[name])
        self._trainer.sync.forget()

    def _trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        return [(name, one) for name, one in model.named_parameters() if one.requires_grad]

    def _earned(self, rows: Sequence[Mapping[str, Any]], seed: int) -> float:
        played = training_games(self._trainer, rows, GAMES, seed=seed)
        rewards = self._trainer.ranks.gather([one.final_reward for one in played if not one.failed])
        return fmean(rewards) if rewards else -math.inf
