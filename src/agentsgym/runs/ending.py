"""The error that ends a run: in its summary, and in a sentence."""

import time
from contextlib import suppress

from agentsgym.envs import ConfigError
from agentsgym.rollout import EveryRolloutFailed
from agentsgym.runs.files import DamagedFile, RunDirectory, Summary, read_summary
from agentsgym.runs.files.atomic import disk_problem
from agentsgym.runs.settings import RunConfig
from agentsgym.runs.trust import resume_command
from agentsgym.training.ranks import OtherRankFailed, Ranks
from agentsgym.types.requests import is_context_overflow
from agentsgym.types.text import mask_secrets

_NOTICE = 1.0
"""Seconds in which a rank that failed writes its error, before those that notice write theirs."""


def note_end(error: BaseException, summary: Summary, config: RunConfig, ranks: Ranks) -> None:
    """Write the error that ended the run to its summary, if it can still be written, and add to it
    what to do. Of several ranks it is that of the one that failed, not that of one that noticed."""
    path = RunDirectory(config.directory).summary
    interrupted = isinstance(error, KeyboardInterrupt)
    if ranks.world_size > 1:
        notices = isinstance(error, OtherRankFailed)
        if notices:
            time.sleep(_NOTICE)
        with suppress(OSError, DamagedFile):
            written = read_summary(path)
            by_notice = str(written.error).startswith(OtherRankFailed.__name__)
            ended = written.status != "running" and (notices or not by_notice)
            if ended or (interrupted and ranks.rank):
                return
            summary = written if ranks.rank else summary
    summary.status = "interrupted" if interrupted else "failed"
    summary.error = None if interrupted else mask_secrets(one_sentence(error))
    if is_context_overflow(summary.error):
        error.add_note(
            "train.max_rollout_tokens=N ends rollouts before the model's context is full"
        )
    elif not isinstance(error, ConfigError):
        when = "" if interrupted else "once that is mended, "
        error.add_note(f"{when}{resume_command(config)} continues from the last checkpoint")
    with suppress(OSError):
        summary.write(path)


def one_sentence(error: BaseException) -> str:
    """The error on one line; a disk problem is named as such."""
    if isinstance(error, EveryRolloutFailed):
        return error.sentence
    text = " ".join(str(error).split())
    return disk_problem(error) or (
        f"{type(error).__name__}: {text}" if text else type(error).__name__
    )
