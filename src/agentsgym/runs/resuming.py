"""What a resumed run must have in common with the run in its directory, and what it loses."""

import hashlib
from pathlib import Path

from agentsgym.envs import ConfigError, find
from agentsgym.envs.settings import paths_of
from agentsgym.runs.files import RunDirectory, Summary, read_metrics
from agentsgym.runs.settings import RunConfig
from agentsgym.runs.trust import trusted


def data_digests(config: RunConfig) -> dict[str, str]:
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


def check_same_run(old: RunConfig, new: RunConfig) -> None:
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


def check_same_data(old: Summary, new: RunConfig, digests: dict[str, str]) -> None:
    """Raise ConfigError if a file of tasks has another content than when the run began."""
    for key, before in old.data.items():
        now = digests.get(key)
        if now != before:
            raise ConfigError(
                f"the run in {new.directory} began with other tasks: the content of the file {key} "
                f"had the digest {before}, now {now or 'there is no such file'}. Name the file as "
                "it was, or another output_dir for a new run"
            )


def check_progress(directory: RunDirectory, *, has_checkpoint: bool) -> None:
    """Raise ConfigError if a resumed run would start again: it has no checkpoint, nor a warm start
    that no step followed."""
    steps = [line["step"] for line in read_metrics(directory.metrics) if line["phase"] == "train"]
    if has_checkpoint or (directory.warm_start.is_dir() and not steps):
        return
    lost = f" and make its {max(steps)} steps again" if steps else ""
    raise ConfigError(
        f"{directory.root} has no checkpoint to continue from, so the run would start again{lost}; "
        "if that is meant, add --restart"
    )
