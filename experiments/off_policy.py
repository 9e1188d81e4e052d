"""What off-policy masks do to the gradient, exactly, and to learning from old samples.

    python experiments/off_policy.py [--report]

The gradient: on the board's enumerable processes, from samplers that are a perturbed copy of the
policy, an older version of it, or rounded to bfloat16. Learning: the preset `explore` with four
boxes, where every rollout is sampled from weights that are exactly 1, 4 or 16 updates old.

docs/results/off-policy.json holds the trainings and is the state as well: those that stand there
are not run again. The tables are printed and the picture is drawn at the end (`--report`: only
that).
"""

import argparse
import copy
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).resolve().parents[1]))
import numpy as np
import torch
from experiments.estimators.board import CHALLENGES
from experiments.estimators.processes import Groups, Process, compare, every_group, gradients
from explore_runs import RESULTS, Store, loaded, made_start, measure, rows_of
from transformers import PrinterCallback, TrainerCallback

from agentsgym import GRPOEnvConfig, GRPOEnvTrainer
from agentsgym.credit.estimators.rloo import rloo
from agentsgym.evaluation.intervals import mean_interval
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.runs import load_config
from agentsgym.training.loss.masks import MASKS, SamplerGap

CAP = 2.0
NO_CAP = 1e9
SEEDS = 3


@dataclass(frozen=True)
class Variant:
    """A correction of the ratio, truncated at `cap` (None: left out), and masks beside it."""

    name: str
    cap: float | None = CAP
    masks: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `GRPOEnvConfig`."""
        if self.cap is None:
            return {"sampler_correction": "none"}
        masks = {name: list(bounds) for name, bounds in self.masks.items()}
        return {"sampler_cap": self.cap, "off_policy_masks": masks}


VARIANTS = (
    Variant("no correction", None),
    Variant("ratio in full", NO_CAP),
    Variant("truncated at 2"),
    *(Variant(f"+ {mask.name}", masks={mask.name: mask.published}) for mask in MASKS.values()),
)
BASE = "truncated at 2"


# -- the gradient ---------------------------------------------------------------------------------

SIZE, DRAWS = 4, 5


def samplers(process: Process) -> Iterator[tuple[str, Process]]:
    """Samplers at known distances: noise on the logits, a policy that learned less, bfloat16."""
    for scale in (0.1, 0.5, 1.0):
        for seed in range(DRAWS):
            noise = np.random.default_rng(seed).normal(size=process.theta.shape)
            yield f"noise {scale}", replace(process, theta=process.theta + scale * noise)
    step = process.true_gradient()
    for size in (0.5, 1.0, 2.0):
        older = process.theta - size * step / np.abs(step).max()
        yield f"older by {size}", replace(process, theta=older)
    rounded = torch.from_numpy(process.theta).bfloat16().double().numpy()
    yield "bfloat16", replace(process, theta=rounded)


def gap_of(process: Process, sampler: Process, groups: Groups, advantages: Any) -> SamplerGap:
    """The gap between policy and sampler at the tokens of the sampler's groups."""
    at = groups.tokens.state, groups.tokens.action
    logps, sampled = process.log_policy[at], sampler.log_policy[at]
    return SamplerGap(*map(torch.from_numpy, (logps, sampled, advantages)))


@dataclass(frozen=True)
class Exact:
    """Of a variant's gradient: `error` and `turned` as in `compare`, `variance` over that of the
    policy's own groups, `noise` the same after the gradient is rescaled to the true one, the share
    of tokens `masked`, and the sampler's mean `distance` |log ρ|, nats."""

    error: float
    turned: float
    variance: float
    noise: float
    masked: float
    distance: float


def exact(process: Process, sampler: Process) -> Iterator[Exact]:
    """Bias and variance of `rloo` on all groups of the sampler, with each variant."""
    truth, own = process.true_gradient(), every_group(process, SIZE)
    groups = every_group(sampler, SIZE)
    _, plain = moments(process, own, rloo(own.table)[own.tokens.step])
    advantages = rloo(groups.table)[groups.tokens.step]
    gap = gap_of(process, sampler, groups, advantages)
    ratio, distance = gap.log_ratio.exp().numpy(), gap.log_ratio.abs().numpy()
    chance = groups.chance[groups.table.group[groups.table.rollout[groups.tokens.step]]]
    for variant in VARIANTS:
        weight = np.ones_like(ratio) if variant.cap is None else np.minimum(ratio, variant.cap)
        kept = [MASKS[name].keep(gap, *bounds).numpy() for name, bounds in variant.masks.items()]
        keep = np.all(kept, axis=0) if kept else np.ones_like(ratio, dtype=bool)
        mean, variance = moments(process, groups, advantages * weight * keep)
        bias = compare(mean, truth)
        scale = bias.scale**2 if bias.scale > 1e-9 else np.nan
        shares = (float(np.average(x, weights=chance)) for x in (~keep, distance))
        yield Exact(bias.error, bias.turned, variance / plain, variance / plain / scale, *shares)


def moments(process: Process, groups: Groups, coefficient: Any) -> tuple[Any, float]:
    """The expected gradient, and its variance over groups."""
    each = gradients(process, groups, coefficient / SIZE)
    mean = np.tensordot(groups.chance, each, 1)
    return mean, float(groups.chance @ ((each - mean) ** 2).sum(axis=(1, 2)))


def every_exact() -> dict[str, dict[str, list[Exact]]]:
    """Sampler → variant → its figures on every process of the board."""
    found: dict[str, dict[str, list[Exact]]] = {}
    for challenge in CHALLENGES.values():
        for name, sampler in samplers(challenge.process):
            by_variant = found.setdefault(name, {})
            for variant, one in zip(VARIANTS, exact(challenge.process, sampler), strict=True):
                by_variant.setdefault(variant.name, []).append(one)
    return found


# -- learning -------------------------------------------------------------------------------------

GAME = {"game": "place", "choices": 4}
UPDATES, ROLLOUTS, GAMES = 80, 16, 64
LAGS = (1, 4, 16)


class LaggedEngine(EmbeddedEngine):
    """Samples from the weights of `lag` updates ago, and before that from the first ones: the
    oldest rollouts that `max_staleness: lag` allows, all of the time."""

    def __init__(self, model: Any, tokenizer: Any, lag: int) -> None:
        super().__init__(copy.deepcopy(model), tokenizer, capacity=256)
        self._past: deque[dict[str, torch.Tensor]] = deque(maxlen=lag + 1)

    def update_weights(self, update: Any) -> None:
        """Keep the new weights, and take the oldest."""
        if update.changed:
            weights = update.model.state_dict()
            self._past.append({name: value.clone() for name, value in weights.items()})
            self.model.load_state_dict(self._past[0])
            self.reset()
        self.policy_version = update.version


class Curve(TrainerCallback):  # type: ignore[misc]
    """Keeps what each update logs."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """An update's figures, not those of the whole training."""
        if "reward" in logs:
            self.logs.append(dict(logs))

    def mean(self, name: str) -> float:
        """Of a figure over all updates."""
        return float(np.mean([entry.get(name, 0.0) for entry in self.logs]))


def train(start: Path, lag: int, seed: int, variant: Variant) -> dict[str, Any]:
    """Train with rollouts that are `lag` updates old; the curve and the score at the end."""
    began = time.process_time()
    torch.manual_seed(seed)
    model, tokenizer = loaded(start)
    curve = Curve()
    with tempfile.TemporaryDirectory() as folder:
        options = {
            **load_config("explore", {}).train.given,
            "output_dir": folder,
            "max_steps": UPDATES,
            "per_device_train_batch_size": ROLLOUTS,
            "seed": seed,
            "use_cpu": True,
            "report_to": "none",
            "save_strategy": "no",
            "logging_steps": 1,
            "disable_tqdm": True,
            "bf16": False,
            **variant.settings,
        }
        trainer = GRPOEnvTrainer(
            model=model,
            args=GRPOEnvConfig(**options),
            train_dataset=rows_of(GAME, tokenizer),
            processing_class=tokenizer,
            engine=LaggedEngine(model, tokenizer, lag),
            callbacks=[curve],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    # Where nothing has signal any more, training stops: the rest would have been as the end.
    rewards = [entry["reward"] for entry in curve.logs]
    rewards += rewards[-1:] * (UPDATES - len(rewards))
    return {
        "lag": lag,
        "seed": seed,
        "score": measure(model, tokenizer, GAME, GAMES)["score"],
        "in_training": float(np.mean(rewards)),
        "masked": curve.mean("masked"),
        "ratio_ess": curve.mean("sampler/ratio_ess"),
        "logp_difference": curve.mean("sampler/logp_difference"),
        "updates": len(curve.logs),
        "curve": [round(reward, 3) for reward in rewards],
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def variants_at(lag: int) -> list[Variant]:
    """What is trained with."""
    return [v for v in VARIANTS if (v.name != "ratio in full" if lag else v.name == BASE)]


def trainings(store: Store, start: Path) -> None:
    """All trainings that are not stored yet."""
    for lag in (4, 16, 1, 0):
        for seed in range(SEEDS):
            done = {r["variant"] for r in store.read() if (r["lag"], r["seed"]) == (lag, seed)}
            missing = [v for v in variants_at(lag) if v.name not in done]
            for variant in missing:
                store.add({"variant": variant.name, **train(start, lag, seed, variant)})


# -- the tables ---------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def gradient_tables() -> str:
    """Bias, variance and masked share of each variant, over processes and draws."""
    found = every_exact()

    def middle(ones: Sequence[Exact], name: str) -> str:
        values = [getattr(one, name) for one in ones]
        return "—" if np.isnan(values).mean() >= 0.5 else f"{np.nanmedian(values):.3f}"

    def rows(*names: str) -> list[list[str]]:
        cells = {
            variant.name: [
                " / ".join(middle(by_variant[variant.name], name) for name in names)
                for by_variant in found.values()
            ]
            for variant in VARIANTS
        }
        return [[name, *line] for name, line in cells.items()]

    def means(variant: str, name: str) -> list[str]:
        each = ([getattr(one, name) for one in v[variant]] for v in found.values())
        return [f"{np.mean(values):.3f}" for values in each]

    head = ["", *found]
    masked = [[v.name, *means(v.name, "masked")] for v in VARIANTS if v.masks]
    parts = (
        "**Bias**: error of the expected gradient / what remains after the best rescaling.\n",
        table(head, [["mean \\|log ρ\\|", *means(BASE, "distance")], *rows("error", "turned")]),
        "**Variance** over that of on-policy groups / the same with the gradient rescaled to the "
        "true one (— where nothing is left of it).\n",
        table(head, rows("variance", "noise")),
        "**Share of tokens masked**, mean over the processes.\n",
        table(head, masked),
    )
    return "\n".join(parts)


def shown(values: Sequence[float], sign: str = "") -> str:
    """The mean with the half-width of Student's 95 % interval, or one value alone."""
    if len(values) < 2:
        return "".join(f"{value:{sign}.3f}" for value in values)
    low, high = mean_interval(values, range(len(values)))
    marked = " **differs**" if sign and low * high > 0 else ""
    return f"{np.mean(values):{sign}.3f} ± {(high - low) / 2:.3f}{marked}"


def learning_table(runs: Sequence[Mapping[str, Any]], lag: int) -> str:
    """A lag's trainings, compared with the base seed by seed."""
    rows = []
    at_base = {run["seed"]: run["in_training"] for run in runs if run["variant"] == BASE}
    for variant in sorted(variants_at(lag), key=lambda v: v.name != BASE):
        own = [run for run in runs if run["variant"] == variant.name]
        if not own:
            continue
        apart = [r["in_training"] - at_base[r["seed"]] for r in own if r["seed"] in at_base]
        against = "the same runs" if apart and not any(apart) else shown(apart, "+")
        rows.append(
            [
                variant.name,
                str(len(own)),
                shown([run["in_training"] for run in own]),
                "" if variant.name == BASE else against,
                shown([run["score"] for run in own]),
                _mean_of(own, "masked"),
                *("" if variant.cap is None else _mean_of(own, name) for name in OF_RATIOS),
            ]
        )
    head = ["", "seeds", "score in training", "minus that of the first row", "held-out score"]
    return table([*head, "masked", "ESS", "nats"], rows)


OF_RATIOS = ("ratio_ess", "logp_difference")


def _mean_of(runs: Sequence[Mapping[str, Any]], name: str) -> str:
    return f"{np.mean([run[name] for run in runs]):.3f}"


def draw(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The curves, means over seeds and ten updates, a panel for each lag."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(LAGS), 3.8), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(LAGS), sharey=True)
    for panel, lag in zip(panels, LAGS, strict=True):
        cells = [("on-policy", 0, BASE), *((v.name, lag, v.name) for v in variants_at(lag))]
        for name, age, variant in cells:
            own = [r["curve"] for r in runs if (r["lag"], r["variant"]) == (age, variant)]
            color = "black" if name == "on-policy" else f"C{COLORS[name]}"
            if own:
                panel.plot(*_smooth(own), color=color, label=name)
        panel.set(title=f"{lag} update{'s' * (lag > 1)} old", xlabel="update")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("score in training")
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(path)


COLORS = {variant.name: number for number, variant in enumerate(VARIANTS)}


def _smooth(curves: Sequence[Sequence[float]]) -> tuple[Any, Any]:
    means = np.mean(curves, axis=0).reshape(-1, 10).mean(axis=1)
    return np.arange(5, UPDATES, 10), means


def report(runs: Sequence[Mapping[str, Any]]) -> None:
    """Draw the picture and print the tables."""
    by_lag = {lag: [run for run in runs if run["lag"] == lag] for lag in (0, *LAGS)}
    draw(runs, RESULTS / "off-policy.png")
    print(gradient_tables())
    for lag in LAGS:
        print(f"{lag} updates old\n\n{learning_table(by_lag[lag], lag)}")
    print("on-policy, in training:", shown([run["in_training"] for run in by_lag[0]]))
    print("on-policy, held-out:", shown([run["score"] for run in by_lag[0]]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="only print the tables")
    store = Store(RESULTS / "off-policy.json")
    if not parser.parse_args().report:
        start = made_start([GAME], Path(tempfile.gettempdir()) / "agentsgym-off-policy")
        trainings(store, start)
    report(store.read())
