"""How a run begins or goes on, what it leaves of its weights, and how it ends."""

import errno
import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsgym.envs import ConfigError, find
from agentsgym.envs.settings import paths_of
from agentsgym.generation.models import is_adapted
from agentsgym.rollout import EveryRolloutFailed
from agentsgym.runs.files import (
    DamagedFile,
    MetricsFile,
    RunDirectory,
    Summary,
    drop_rollouts_from,
    drop_token_records_from,
    read_metrics,
    read_summary,
)
from agentsgym.runs.files.directory import remove, replacing, write_text
from agentsgym.runs.from_config import versions
from agentsgym.runs.models import Policy, Use, load_model, load_pretrained, pretrained_tokenizer
from agentsgym.runs.settings import BUILTIN, TINY, ModelSettings, RunConfig
from agentsgym.runs.sources import load_run
from agentsgym.runs.trust import resume_command, trusted
from agentsgym.runs.weights import checkpoint_damage, is_adapter
from agentsgym.training.ranks import OtherRankFailed, Ranks
from agentsgym.types.requests import is_context_overflow
from agentsgym.types.text import mask_secrets, named_error

if TYPE_CHECKING:
    from agentsgym.training import GRPOEnvConfig, GRPOEnvTrainer


@dataclass(frozen=True, slots=True)
class Start:
    """What a run begins with: the summary so far, whether RL is finished, so that only the
    evaluation is left, or else the checkpoint to go on from, after `step`, and the agent's tokens
    up to it."""

    summary: Summary
    trained: bool
    checkpoint: Path | None
    step: int
    agent_tokens: int


def begun(
    config: RunConfig,
    settings: "GRPOEnvConfig",
    note: Callable[[str], None],
    resumes: bool,
    restarts: bool,
) -> Start:
    """Prepare a run's directory: write the configuration, and drop all data after the checkpoint,
    which a resumed run will produce again. Rank 0 calls it. Raises ConfigError for another run."""
    import torch

    directory, digests = RunDirectory(config.directory), _data_digests(config)
    new: dict[str, Any] = {
        "name": config.directory.name,
        "seed": config.seed,
        "env": config.env,
        "env_config": config.env_config,
        "model": config.model.path,
        "versions": versions(),
    }
    summary, found, trained = Summary(**new), None, False
    if resumes and directory.is_run():
        found = last_whole(directory, note)
        _check_same_run(load_run(directory.root), config)
        summary = _recalled(summary, new, directory, note)
        _check_same_data(summary, config, digests)
        trained = _is_trained(summary, config, settings)
        if not (restarts or trained):
            _check_progress(directory, has_checkpoint=found is not None)
    write_text(directory.config, config.to_yaml())
    for path in directory.rank_errors():
        remove(path)
    step, tokens = found[0] if found else 0, 0
    step = summary.steps if trained else step
    drop_rollouts_from(directory.root, step)
    if not trained:
        MetricsFile(directory.metrics).drop_after(step)
        drop_token_records_from(directory.root, step)
        lines = [m for m in read_metrics(directory.metrics) if m["phase"] == "train"]
        last = lines[-1] if lines else {}
        tokens = last.get("total_agent_tokens", 0)
        summary.steps = step
        summary.phases["rl"] = last.get("seconds", 0.0)
    summary.data, summary.threads = digests, torch.get_num_threads()
    summary.write(directory.summary)
    return Start(summary, trained, found[1] if found and not trained else None, step, tokens)


def _recalled(
    new: Summary, fields: Mapping[str, Any], directory: RunDirectory, note: Callable[[str], None]
) -> Summary:
    """The summary of the run that is resumed, to go on with, or a new one if it is damaged."""
    try:
        old = read_summary(directory.summary)
    except (FileNotFoundError, DamagedFile) as error:
        note(f"{error}; the evaluations and times before are not in the new one")
        return new
    anew: dict[str, Any] = {"status": "running", "error": None, "after": None, "references": {}}
    return old.model_copy(update={**fields, **anew})


def _is_trained(summary: Summary, config: RunConfig, settings: "GRPOEnvConfig") -> bool:
    """Whether RL is finished, so that a resumed run only has to evaluate."""
    reason = summary.stop_reason or "interrupted"
    if reason == "interrupted" or not RunDirectory(config.directory).model.is_dir():
        return False
    if reason == "max_steps":
        return summary.steps >= int(settings.max_steps)
    if reason == "max_seconds":
        return summary.phases.get("rl", 0.0) >= (config.max_seconds or math.inf)
    return True


def _data_digests(config: RunConfig) -> dict[str, str]:
    """Digests of the contents of the files that have the tasks of a run, by the keys that name
    them."""
    settings = find(config.env, trusted(config)).Settings
    named = {f"env_config.{k}": path for k, path in paths_of(settings, config.env_config).items()}
    named |= {"data.train": config.data.train or "", "data.eval": config.data.eval or ""}
    files = {key: Path(path).expanduser() for key, path in named.items() if path}
    return {key: _digest(file) for key, file in files.items() if file.is_file()}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _check_same_run(old: RunConfig, new: RunConfig) -> None:
    """Raise ConfigError if a run is resumed with another environment or model."""
    for key, before, now in (
        ("env", old.env, new.env),
        ("model.path", old.model.path, new.model.path),
        ("model.revision", old.model.revision, new.model.revision),
    ):
        if before != now:
            raise ConfigError(
                f"the run in {new.directory} has {key}={before}, and is to be resumed with "
                f"{key}={now}, which would be another run: leave it out, or name another "
                "output_dir for a new run"
            )


def _check_same_data(old: Summary, new: RunConfig, digests: dict[str, str]) -> None:
    """Raise ConfigError if a file of tasks has another content than when the run began."""
    for key, before in old.data.items():
        now = digests.get(key)
        if now != before:
            raise ConfigError(
                f"the run in {new.directory} began with other tasks: the content of the file {key} "
                f"had the digest {before}, now {now or 'there is no such file'}. Name the file as "
                "it was, or another output_dir for a new run"
            )


def _check_progress(directory: RunDirectory, *, has_checkpoint: bool) -> None:
    """Raise ConfigError if a resumed run would start again: it has no checkpoint, nor a warm start
    that no step followed."""
    steps = _steps(directory)
    if _goes_on(directory, steps, has_checkpoint):
        return
    lost = f" and make its {max(steps)} steps again" if steps else ""
    raise ConfigError(
        f"{directory.root} has no checkpoint to continue from, so the run would start again{lost}; "
        "if that is meant, add --restart"
    )


def _steps(directory: RunDirectory) -> list[int]:
    """The training steps that were logged."""
    return [line["step"] for line in read_metrics(directory.metrics) if line["phase"] == "train"]


def _goes_on(directory: RunDirectory, steps: Sequence[int], has_checkpoint: bool) -> bool:
    """Whether a resumed run has a checkpoint, or a warm start that no step followed."""
    return has_checkpoint or (directory.warm_start.is_dir() and not steps)


# -- the weights of a run --------------------------------------------------------------------------


def save_model(trainer: "GRPOEnvTrainer", folder: Path) -> None:
    """Write the trained model of a run. All ranks must call it; the first one writes."""
    from agentsgym.training.reference import REFERENCE_ADAPTER

    def save() -> None:
        if trainer.ranks.rank:
            trainer.save_model(str(folder))  # gives its part of the weights, and writes nothing
            return
        with replacing(folder) as part:
            trainer.save_model(str(part))
            remove(part / REFERENCE_ADAPTER)

    trainer.ranks.together(save)


def last_whole(directory: RunDirectory, note: Callable[[str], None]) -> tuple[int, Path] | None:
    """Step and path of the newest checkpoint that can be read, or None; newer ones are reported."""
    for step, path in directory.all_checkpoints():
        problem = checkpoint_damage(path)
        if problem is None:
            return step, path
        note(f"{path} is damaged ({problem}); the previous one is used")
    return None


def load_trained(config: RunConfig, folder: Path) -> Policy:
    """The run's model with the weights in `folder`, a checkpoint or the trained model. Raises
    ConfigError if they are whole weights and the run trains an adapter, or the reverse."""
    from agentsgym.training.checkpoints import load_adapters

    adapted = config.model.lora is not None or is_adapter(Path(config.model.path))
    if is_adapter(folder) != adapted:
        kinds = ("whole weights", "an adapter")
        raise ConfigError(
            f"{folder} contains {kinds[is_adapter(folder)]}, but the run trains {kinds[adapted]}; "
            "model.lora must stay as it was"
        )
    if not adapted:
        attention = config.model.attn_implementation
        return load_pretrained(folder, ModelSettings(attn_implementation=attention))
    policy = load_model(config.model, Use.of(config, training=True))
    try:
        load_adapters(policy.model, folder)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Policy(policy.model, pretrained_tokenizer(folder))


def name_reference(model: Any, section: ModelSettings, folder: Path) -> None:
    """Set the name of `model` to its initial weights, which TRL loads as the reference: a resumed
    model would otherwise be its own. If the path of the run's `section` does not lead to them, a
    copy is kept in `folder`. The reference of an adapter is in the model itself."""
    if is_adapted(model):
        return
    source = section.path
    if source == TINY or source.startswith(BUILTIN) or section.revision is not None:
        if not folder.is_dir():
            with replacing(folder) as part:
                model.save_pretrained(part)
        source = str(folder)
    model.config._name_or_path = source


# -- the error that ends a run ---------------------------------------------------------------------


_NOTICE = 1.0
"""Seconds in which a rank that failed writes its error, if another one notices at once."""


def note_end(
    error: BaseException, summary: Summary, config: RunConfig, ranks: Ranks
) -> BaseException:
    """Write the error that ended the run to its summary, and return it with what to do. Rank 0
    writes the summary; another rank that failed leaves it the error in a file, before its end lets
    rank 0 notice. Of a full disk the unfinished checkpoint is removed, and the error says so."""
    directory = RunDirectory(config.directory)
    error = _of_full_disk(error, directory)
    interrupted = isinstance(error, KeyboardInterrupt)
    text = None if interrupted else mask_secrets(one_sentence(error))
    with suppress(OSError):
        if ranks.rank == 0:
            if isinstance(error, OtherRankFailed):
                text = _error_of_another(directory) or text
            summary.status = "interrupted" if interrupted else "failed"
            summary.error = text
            lines = read_metrics(directory.metrics)
            summary.steps = max([summary.steps, *(line["step"] for line in lines)])
            summary.write_end(directory.summary)
        elif text is not None and not isinstance(error, OtherRankFailed):
            write_text(directory.rank_error(ranks.rank), text)
    if is_context_overflow(text):
        error.add_note(
            "train.max_rollout_tokens=N ends rollouts before the model's context is full"
        )
    elif not isinstance(error, ConfigError):
        when = "" if interrupted else "once that is mended, "
        then = "continues from the last checkpoint"
        with suppress(OSError):
            if not _goes_on(directory, _steps(directory), directory.last_checkpoint() is not None):
                then = "--restart starts it again, because there is no checkpoint yet"
        error.add_note(f"{when}{resume_command(config)} {then}")
    return error


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WRITERS = ("inline_container", "PytorchStreamWriter", os.strerror(errno.ENOSPC))


def _of_full_disk(error: BaseException, directory: RunDirectory) -> BaseException:
    """The error itself, or if it is a library's for a file that found no room, that in words."""
    text, is_disk = str(error), isinstance(error, OSError) and error.errno in _FULL
    if not (is_disk or any(sign in text for sign in _WRITERS)):
        return error
    for _, folder in directory.all_checkpoints()[:1]:
        if checkpoint_damage(folder) is not None:
            with suppress(OSError):
                remove(folder)
    if isinstance(error, OSError) and error.filename is not None:
        return error
    free = shutil.disk_usage(directory.root).free // 1_000_000
    reason = f"No space left on device, or a limit on the size of files ({free} MB are free)"
    return OSError(errno.ENOSPC, reason, str(directory.root))


def _error_of_another(directory: RunDirectory) -> str | None:
    """The error that another rank left; None if it was killed."""
    end = time.monotonic() + _NOTICE
    while not (files := directory.rank_errors()) and time.monotonic() < end:
        time.sleep(0.1)
    texts = [path.read_text() for path in files]
    for path in files:
        remove(path)
    return texts[0] if texts else None


def one_sentence(error: BaseException) -> str:
    """The error on one line."""
    if isinstance(error, EveryRolloutFailed):
        return error.sentence
    return named_error(error)
