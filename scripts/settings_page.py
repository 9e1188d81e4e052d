"""Write docs/settings.md, from the settings themselves and the table of what becomes of TRL's."""

import dataclasses
from pathlib import Path
from typing import Any

from trl import GRPOConfig

from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.setting_conditions import BELONGS_TO
from agentsgym.training.trl_settings import GROUPS, Setting

_PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
_HEAD = """# Settings

`GRPOEnvConfig` is TRL's `GRPOConfig` with settings of ours. Each one is set as a keyword, under
`train:` in a run's file, on the command line (`agentsgym train RUN train.NAME=VALUE`), or by
`TrlParser(GRPOEnvConfig)`. A value of another type, NaN, an infinite number, or one outside its
range is refused with a sentence that says what is allowed. This page is made by
`python scripts/settings_page.py`.

## Ours

| setting | default | |
|---|---|---|
"""
_TRL = """
## TRL's

A setting is used, refused (it may only keep its default), or without meaning here. Where a setting
is used only with others, another value than its default without them is refused, or, where it is a
detail of something that is switched off, named in a warning when training starts.

| setting | | |
|---|---|---|
"""
_ARGUMENTS = """
`GRPOEnvTrainer` takes `callbacks`, `optimizers`, `peft_config` and `quantization_config` as TRL's
trainer does, and none of `reward_funcs`, `reward_processing_classes`, `tools`, `rollout_func` and
`environment_factory`: environments play and reward.
"""


def settings_page() -> str:
    """The whole page, as Markdown."""
    of_trl = {field.name for field in dataclasses.fields(GRPOConfig)}
    ours = [f for f in dataclasses.fields(GRPOEnvConfig) if f.name not in of_trl]
    lines = [_line(f"`{f.name}`", _default(f), _help(f)) for f in ours]
    table = [_of_trl(setting) for group in GROUPS.values() for setting in group]
    return _HEAD + "\n".join(lines) + "\n" + _TRL + "\n".join(table) + "\n" + _ARGUMENTS


def _of_trl(setting: Setting) -> str:
    parts = (BELONGS_TO.get(setting.name, ""), setting.why)
    return _line(f"`{setting.name}`", setting.verdict, "; ".join(filter(None, parts)))


def _help(field: Any) -> str:
    belongs = BELONGS_TO.get(field.name)
    return str(field.metadata["help"]) + (f" Has an effect {belongs}." if belongs else "")


def _default(field: Any) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"`{field.default_factory()!r}`"
    return "" if field.default is None else f"`{field.default!r}`"


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    _PAGE.write_text(settings_page(), encoding="utf-8")
