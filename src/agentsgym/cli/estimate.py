"""What `agentsgym train … --estimate` prints: memory and tokens of a run that is not started."""

from typing import TYPE_CHECKING

from rich.table import Table

from agentsgym.cli.console import out, shown

if TYPE_CHECKING:
    from agentsgym.runs.config import RunConfig
    from agentsgym.runs.estimate import Estimate
    from agentsgym.runs.memory import Memory

_PARTS = {
    "weights": "weights",
    "copies": "copies of the weights (sampling, reference)",
    "optimizer": "optimizer state",
    "gradients": "gradients",
    "activations": "activations",
    "head": "log-probabilities and head",
    "cache": "cache of the engine",
    "sampling": "logits of the engine",
    "kernels": "kernels of 16-bit products on a CPU",
}
# What is only there in one of the two phases.
_PLAYING = ("cache", "sampling")
_UPDATING = ("gradients", "activations", "head")


def print_estimate(config: "RunConfig", processes: int) -> None:
    """Estimate a run and print the result."""
    from agentsgym.runs.estimate import estimate

    found = estimate(config, processes)
    model, tokens = found.model, found.tokens
    adapter = found.workload.adapter
    trained = f"; an adapter of {_count(adapter)} is trained" if adapter else ", all are trained"
    name = shown(config.model.path)
    out.print(f"[bold]{name}[/]: {_count(model.parameters)} parameters{trained}\n")
    out.print(_table(found, processes))
    out.print(f"\n{_dominant(next(iter(found.memory.values())))}")
    where = "a process" if processes > 1 else "the optimizer"
    out.print(
        f"A step of {where}: {tokens.rollouts} rollouts of at most {tokens.turns} turns and "
        f"{tokens.rollout} tokens; it samples at most {tokens.agent:,} tokens, and the loss reads "
        f"at most {tokens.read:,}."
    )
    for note in found.notes:
        out.print(note)


def _table(found: "Estimate", processes: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("memory at its peak")
    for layout in found.memory:
        title = layout if processes == 1 else f"each of {processes}, {layout}"
        table.add_column(title, justify="right")
    for part, title in _PARTS.items():
        values = [getattr(memory, part) for memory in found.memory.values()]
        if any(values):
            table.add_row(title, *(size(value) for value in values))
    every = found.memory.values()
    table.add_section()
    table.add_row("rolling out, at once", *(size(memory.playing) for memory in every))
    table.add_row("updating, at once", *(size(memory.updating) for memory in every))
    table.add_row("peak", *(size(memory.peak) for memory in every), style="bold")
    return table


def _dominant(memory: "Memory") -> str:
    """One line on the largest part, and the setting that changes it."""
    left_out = _UPDATING if memory.playing > memory.updating else _PLAYING
    parts = [name for name in _PARTS if name not in left_out]
    part = max(parts, key=lambda name: int(getattr(memory, name)))
    share = getattr(memory, part) / max(memory.peak, 1)
    return f"Most of it is {_PARTS[part]} ({share:.0%} of the peak): {_ADVICE[part]}."


_ADVICE = {
    "weights": "a smaller model, or model.lora with model.dtype=bfloat16, needs less",
    "copies": "engine.urls samples elsewhere, train.beta=0 needs no reference",
    "optimizer": "model.lora trains few weights, train.optim=adamw_8bit keeps smaller moments",
    "gradients": "model.lora trains few weights, ZeRO-2 divides them",
    "activations": "lower train.max_tokens_per_forward, or train.gradient_checkpointing=true",
    "head": "lower train.max_tokens_per_forward",
    "cache": "lower engine.capacity or train.max_rollout_tokens",
    "sampling": "lower engine.capacity",
    "kernels": "model.dtype=float32 compiles none",
}


def size(value: int) -> str:
    """Bytes in a unit that one reads."""
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def _count(number: int) -> str:
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.2f} M"
