"""The `rollout_func` that Axolotl imports by its name, with the settings of the section."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from agentsgym.integrations.axolotl.plugin import section_of_this_run
from agentsgym.integrations.axolotl.section import Section
from agentsgym.integrations.trl import RolloutFunc

_FUNCTIONS: WeakKeyDictionary[Any, RolloutFunc] = WeakKeyDictionary()


def rollout_func(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
    """Play a trial for each prompt, as `agentsgym.integrations.trl.RolloutFunc`.

    Raises SeveralRows (a ValueError) for a trial that gives several rows.
    """
    if trainer not in _FUNCTIONS:
        _FUNCTIONS[trainer] = _of(section_of_this_run())
    return _FUNCTIONS[trainer](prompts, trainer)


def _of(section: Section) -> RolloutFunc:
    credit = {"advantage_estimator", "advantage_options"}
    settings = {key: value for key, value in section.settings.items() if key not in credit}
    return RolloutFunc(**{**settings, "trust": section.trust})
