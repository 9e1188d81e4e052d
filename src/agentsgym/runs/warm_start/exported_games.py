"""The conversations of an export as a source of a warm start. The file may come from anybody: only
its texts are used, and what no game can contain is left out."""

import heapq
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.runs.warm_start.rerender import rerendered
from agentsgym.runs.warm_start.settings import GamesConfig
from agentsgym.tokens import Codec
from agentsgym.types import Episode, Message, Rollout, Step

Note = Callable[[str], None]
Wanted = Callable[[Rollout], bool]

_KINDS = {".parquet": "parquet", ".jsonl": "json"}
_SHARD = re.compile(r"data-\d+-of-\d+\.arrow")
_COLUMNS = {"messages", "malformed", "env", "task", "reward"}
_BAD = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def check_export(place: str) -> None:
    """Raise ConfigError if there is no export of conversations."""
    next(_examples(place), None)


def _files(place: str) -> tuple[str, list[str]]:
    """The kind of the files of an export, and their paths."""
    path = Path(place)
    if path.is_dir():
        kind, files = "arrow", sorted(filter(_is_shard, path.iterdir()))
    else:
        kind, files = _KINDS.get(path.suffix, ""), [path] if path.is_file() else []
    if not kind or not files:
        raise ConfigError(
            f"warm_start.data: {place} is no export; write one with agentsgym export RUN "
            "--to messages"
        )
    return kind, [str(file.absolute()) for file in files]


def _is_shard(path: Path) -> bool:
    return _SHARD.fullmatch(path.name) is not None and not path.is_symlink()


def exported_games(
    config: GamesConfig, codec: Codec, wanted: Wanted, max_tokens: int | None, note: Note
) -> list[Rollout]:
    """At most `config.games` of the conversations, those with most reward, of equal ones the first.

    `wanted` selects games by environment and task. Damaged ones are left out with a note. Raises
    ConfigError if none remains.
    """
    found: list[tuple[float, int, Rollout]] = []
    bad = count = 0
    for example in _examples(str(config.data)):
        count += 1
        try:
            game = _game(example, count)
            if not _counts(game, config) or not wanted(game):
                continue
            game = rerendered(game, codec, max_tokens)
        except _BAD:
            bad += 1
            continue
        found.append((game.final_reward, -count, game))
        if len(found) > 2 * config.games:
            found = heapq.nlargest(config.games, found)
    if bad:
        note(f"warm_start.data: {bad} of {count} games are left out: damaged or too long")
    if not found:
        raise ConfigError(
            f"warm_start.data: {config.data} holds no game of this environment's training tasks"
            + ("" if config.min_reward is None else f" with a reward of {config.min_reward:g}")
        )
    return [game for *_, game in heapq.nlargest(config.games, found)]


def _examples(place: str) -> Iterator[Mapping[str, Any]]:
    from datasets import load_dataset

    kind, files = _files(place)
    try:
        rows = load_dataset(kind, data_files=files, split="train", streaming=True)
        # A file may declare a column as images or audio, which would be read from where it says.
        for number, row in enumerate(rows.decode(False)):
            if not number and not set(row) >= _COLUMNS:
                raise ConfigError(
                    f"warm_start.data: {place} has no column "
                    f"{', '.join(sorted(_COLUMNS - set(row)))}; export it with --to messages"
                )
            yield row
    except ConfigError:
        raise
    except (ValueError, OSError, RuntimeError, TypeError, KeyError) as error:
        raise ConfigError(f"warm_start.data: {place} cannot be read: {error}") from None


def _game(example: Mapping[str, Any], number: int) -> Rollout:
    """A game of one episode."""
    messages: list[Message] = [
        {"role": message["role"], "content": message["content"]} for message in example["messages"]
    ]
    session_id = f"export-{number}"
    reward = float(example["reward"])
    episode = Episode(0, _steps(messages, example["malformed"]), tuple(messages), reward, 1.0, "")
    return Rollout(
        session_id=session_id,
        group=number,
        index=0,
        env_class_path=str(example["env"]),
        env_config={},
        task_data=dict(json.loads(example["task"])),
        episodes=(episode,),
        rows=(),
    )


def _steps(messages: Sequence[Message], malformed: Sequence[bool]) -> tuple[Step, ...]:
    places = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    return tuple(
        Step(
            number,
            messages[place - 1]["content"] if place else "",
            messages[place]["content"],
            0.0,
            place == places[-1],
            malformed=bool(bad),
        )
        for number, (place, bad) in enumerate(zip(places, malformed, strict=True))
    )


def _counts(game: Rollout, config: GamesConfig) -> bool:
    if not math.isfinite(game.final_reward):
        return False
    return config.min_reward is None or game.final_reward >= config.min_reward
