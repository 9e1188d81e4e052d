"""The file of a checkpoint that says which groups had been submitted and were in no batch yet."""

import json
import logging
from pathlib import Path
from typing import Any

from agentsgym.training.rollouts.group_order import Submitted

logger = logging.getLogger(__name__)

NAME = "rollout_queue.json"
_MOST_BYTES = 1 << 24


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
    content = _content(folder / NAME)
    if content is None:
        return None
    if not _fits(content, groups):
        warn(folder)
        return None
    return Submitted(content["generations"], tuple(sorted(content["open"])))


def warn(folder: Path) -> None:
    """Say that the file of a checkpoint is not used."""
    logger.warning(
        "%s does not fit this run; the tasks of its open groups are not played", folder / NAME
    )


def _content(path: Path) -> Any:
    """The content of the file, False if it is none that a run writes, None if there is none."""
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            return False
        if path.stat().st_size > _MOST_BYTES:
            return False
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return False
    return False if content is None else content


def _fits(content: Any, groups: int) -> bool:
    if not isinstance(content, dict) or content.get("groups") != groups:
        return False
    number, opened = content.get("generations"), content.get("open")
    if type(number) is not int or number < 0 or not isinstance(opened, list):
        return False
    whole = all(type(group) is int and 0 <= group < number * groups for group in opened)
    return whole and len(set(opened)) == len(opened) and len(opened) % groups == 0
