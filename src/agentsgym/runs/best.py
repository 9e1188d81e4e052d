"""The weights that earned most in training, for a run that unlearned what it knew."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import TrainerCallback

from agentsgym.evaluation import rollout_requests
from agentsgym.runs.files.atomic import replacing

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvTrainer

WINDOW = 4
"""Training steps whose mean reward says how good the weights after them are."""
GAMES = 256
"""Training games that the kept and the last weights play at the end."""


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
        trainer = self._trainer
        most = trainer.args.max_rollout_tokens
        requests = rollout_requests(rows, GAMES, seed=seed, max_rollout_tokens=most)
        played = trainer.play(
            trainer.collector.share(requests),
            trainer.state.global_step,
            trainer.collector.train_sampling,
        )
        rewards = trainer.ranks.gather([one.final_reward for one in played if not one.failed])
        return fmean(rewards) if rewards else -math.inf
