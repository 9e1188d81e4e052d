"""docs/settings.md, made from the settings themselves; docs_tables.py writes it."""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, Literal, Union

import annotated_types
from pydantic.fields import FieldInfo
from trl import GRPOConfig

from agentsgym.runs.settings import RunConfig
from agentsgym.training.settings import OwnSettings, TrainSection
from agentsgym.training.trl_settings import BELONGS_TO
from agentsgym.types.settings import Section

_HEAD = """# Settings

A run takes its settings from a preset or a file, and from `KEY=VALUE` on the command line
(`agentsgym train quickstart engine.capacity=64 train.learning_rate=1e-4`). A wrong key or value is
refused before anything is loaded; the error names the allowed values. A list with one entry may be
written as that entry. In the second column, the default follows the allowed values.
"""
_TRAIN = """
## train

`GRPOEnvConfig` is TRL's `GRPOConfig` plus the settings below. Set them as keyword arguments in
Python, as `train.NAME` in a run, or as options or YAML keys with `TrlParser(GRPOEnvConfig)`. In
Python, `engine` and `ray` are fields, too: `GRPOEnvConfig(engine={"urls": ["http://…"]},
ray={"workers": 4})`. In a run, set `engine`, `ray`, `seed`, `output_dir`, `model.dtype` and
`model.chat_template` outside the `train` section.
"""
_TRL = """
## TRL's settings

All other settings of TRL's `GRPOConfig` work as in TRL, with these differences:
`per_device_train_batch_size` and `generation_batch_size` count rollouts, `steps_per_generation`
counts batches of rollouts, and `num_generations` is the number of rollouts per task. `temperature`
is the sampling temperature in training; `data_seed` (None: `seed`) determines the order of tasks; a
checkpoint that is due within a generation is saved at the generation's end; `metric_for_best_model`
is the reward by default; `scale_rewards` affects only the estimator `grpo`. These settings are
refused where they have no effect:

| setting | has an effect |
|---|---|
"""
_ARGUMENTS = """
Some other settings, such as `use_vllm` and `max_completion_length`, are refused unless they keep
their default; the error names the setting to use instead. TRL's settings for the data loader and
for evaluation batches have no effect.

`GRPOEnvTrainer` takes `callbacks`, `optimizers`, `peft_config` and `quantization_config` like TRL's
trainer, but not `reward_funcs`, `reward_processing_classes`, `tools`, `rollout_func` or
`environment_factory`, because the environment runs the episode and computes the reward.
"""
_TABLE = "\n| setting | value; default | |\n|---|---|---|\n"


def settings_page() -> str:
    """The whole page, as Markdown."""
    parts = [_HEAD, *_sections(RunConfig, ""), _TRAIN + _TABLE + "\n".join(_own_rows()) + "\n"]
    return "".join([*parts, _TRL + "\n".join(_trl_rows()) + "\n", _ARGUMENTS])


def _sections(kind: type[Section], prefix: str) -> Iterator[str]:
    """The tables of a section and of those in it."""
    inner, rows = [], []
    for name, field in kind.model_fields.items():
        section = _section_of(field.annotation)
        if section is TrainSection:
            continue  # its tables stand below
        if section is not None:
            inner.append((section, f"{prefix}{name}."))
        if _text(field.description).startswith("For the reader"):
            continue
        if section is None or field.description:
            rows.append(_row(prefix + name, field))
    title = f"\n## {prefix.rstrip('.')}\n\n{_text(inspect.getdoc(kind))}\n" if prefix else ""
    yield title + _TABLE + "\n".join(rows) + "\n"
    for section, name in inner:
        yield from _sections(section, name)


def _section_of(annotation: Any) -> type[Section] | None:
    kinds = [annotation, *typing.get_args(annotation)]
    sections = (k for k in kinds if isinstance(k, type) and issubclass(k, Section))
    return next(sections, None)


def _row(name: str, field: FieldInfo, more: str = "") -> str:
    allowed = _value(field.annotation, field.metadata)
    default = "" if field.is_required() else _default(field.get_default(call_default_factory=True))
    shown = "; ".join(text for text in (allowed, default) if text)
    return _line(f"`{name}`", shown, _text(field.description) + more)


def _own_rows() -> Iterator[str]:
    preset = {"preset": TrainSection.model_fields["preset"]}
    for name, field in (preset | OwnSettings.model_fields).items():
        if _section_of(field.annotation) is None:
            effect = f" Has an effect {BELONGS_TO[name]}." if name in BELONGS_TO else ""
            yield _row(name, field, effect)


def _trl_rows() -> Iterator[str]:
    """What works with other settings only, those that need the same ones in one row."""
    alike: dict[str, list[str]] = {}
    for name in _of_trl(BELONGS_TO):
        alike.setdefault(BELONGS_TO[name], []).append(name)
    for needed, names in alike.items():
        yield _line(", ".join(f"`{name}`" for name in names), needed)


def _of_trl(known: Container[str]) -> list[str]:
    """Those of TRL's settings that are among these, in TRL's order."""
    return [field.name for field in dataclasses.fields(GRPOConfig) if field.name in known]


_KINDS = {bool: "true, false", int: "integer", float: "number", str: "text", dict: "mapping"}


def _value(annotation: Any, metadata: Any = ()) -> str:
    """What a setting may be."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _value(args[0], [*args[1:], *metadata])
    if annotation in (Path, Any) or _section_of(annotation) is not None:
        return "path" if annotation is Path else "section"
    if origin is Literal:
        return ", ".join(f"`{arg}`" for arg in args)
    if origin in (Union, types.UnionType):
        kinds = [_value(arg, metadata) for arg in args if arg is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if origin is list:
        item = _value(args[0]).partition(" ")[0]
        return f"list of {item if item in _KINDS.values() else 'text'}s"
    return _KINDS.get(origin or annotation, "text") + _range(metadata)


_SANE = 10_000_000  # an upper bound that no setting comes near


def _range(metadata: Any) -> str:
    marks = []
    for each in metadata:
        marks += each.metadata if isinstance(each, FieldInfo) else [each]
    words = {
        annotated_types.Ge: ("≥", "ge"),
        annotated_types.Gt: (">", "gt"),
        annotated_types.Le: ("≤", "le"),
        annotated_types.Lt: ("<", "lt"),
    }
    limits = [
        f"{sign}{getattr(mark, key):,}"
        for mark in marks
        for sign, key in [words.get(type(mark), ("", ""))]
        if sign and getattr(mark, key) != _SANE
    ]
    return f" {', '.join(limits)}" if limits else ""


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "" if value in (None, "", [], {}) or isinstance(value, Section) else f"`{value}`"


def _text(text: str | None) -> str:
    words = " ".join((text or "").split())
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", words)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
