"""The file of a checkpoint that says which groups had been submitted and were in no batch yet."""

import json
import logging
from pathlib import Path
from typing import Any

from agentsgym.training.rollouts.group_order import Submitted

logger = logging.getLogger(__name__)

NAME = "rollout_queue.json"


def write_queue(folder: Path, submitted: Submitted | None, groups: int) -> None:
    """Write what all ranks have submitted; a generation has `groups` groups. None removes the file
    that another run has left in a checkpoint of the same step."""
    if submitted is None:
        (folder / NAME).unlink(missing_ok=True)
        return
    content = {"generations": submitted.generations, "open": submitted.open, "groups": groups}
    (folder / NAME).write_text(json.dumps(content), encoding="utf-8")


def read_queue(folder: Path, groups: int) -> Submitted | None:
    """What a checkpoint's run had submitted; None if there is no file, or, with a warning, one that
    does not fit generations of `groups` groups."""
    try:
        content = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        content = None
    if not _fits(content, groups):
        logger.warning(
            "%s does not fit this run; the tasks of its open groups are not played", folder / NAME
        )
        return None
    return Submitted(content["generations"], tuple(sorted(content["open"])))


def _fits(content: Any, groups: int) -> bool:
    if not isinstance(content, dict) or content.get("groups") != groups:
        return False
    number, opened = content.get("generations"), content.get("open")
    if type(number) is not int or number < 0 or not isinstance(opened, list):
        return False
    whole = all(type(group) is int and 0 <= group < number * groups for group in opened)
    return whole and len(set(opened)) == len(opened) and len(opened) % groups == 0
