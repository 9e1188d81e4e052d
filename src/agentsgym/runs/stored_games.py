"""The rollouts of a run as a source of a warm start. They may come from anybody: only their texts
are used, the rows are written anew by the model's own codec, and what no game can contain is left
out."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from agentsgym.envs import ConfigError
from agentsgym.runs.files import DamagedFile, NewerFormat, RunDirectory, read_file
from agentsgym.tokens import Codec, Transcript
from agentsgym.training.warm_start_settings import WarmStartSettings
from agentsgym.types import GenerationResult, Rollout

Note = Callable[[str], None]
Selection = Callable[[Rollout], bool]

_BAD = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def stored_games(
    settings: WarmStartSettings,
    codec: Codec,
    selection: Selection,
    max_tokens: int | None,
    note: Note,
) -> list[Rollout]:
    """At most `games` games, those with most reward: the best of each group, of equal ones the
    latest.

    `selection` selects games by environment and task. Damaged ones, and those with a row of more
    than `max_tokens`, are left out with a note. Raises ConfigError if none remains.
    """

    def counts(game: Rollout) -> bool:
        reward = game.final_reward
        enough = settings.min_reward is None or reward >= settings.min_reward
        return not game.failed and math.isfinite(reward) and enough and selection(game)

    folder, games, bad = str(settings.run), list[Rollout](), 0
    by_step = groupby(training_files(folder), key=itemgetter(0))
    for files in reversed([[path for _, path in files] for _, files in by_step]):
        played = [game for path in files for game in _read(path, note) if counts(game)]
        for game in best_of_groups(played):  # a group may continue in the next file
            try:
                games.append(rerendered(game, codec, max_tokens))
            except _BAD:
                bad += 1
    if bad:
        note(f"warm_start.run: {bad} of {bad + len(games)} games are left out: damaged or too long")
    if not games:
        raise ConfigError(
            f"warm_start.run: {folder} holds no game of this environment's training tasks"
            + ("" if settings.min_reward is None else f" with a reward of {settings.min_reward:g}")
        )
    return sorted(games, key=lambda game: -game.final_reward)[: settings.games]


def training_files(folder: str) -> list[tuple[int, Path]]:
    """Step and file of a run's training rollouts. Raises ConfigError if there are none."""
    files = RunDirectory(Path(folder)).rollout_files()
    generations = [(step, path) for phase, step, path in files if phase == "train"]
    if not generations:
        raise ConfigError(f"warm_start.run: {folder} holds no training rollouts of a run")
    return generations


def _read(path: Path, note: Note) -> list[Rollout]:
    try:
        return [line.rollout for line in read_file(path)]
    except (DamagedFile, NewerFormat) as error:
        note(f"warm_start.run: {error}; this file is left out")
        return []


def best_of_groups(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The rollout with the highest reward of each group, the first of equal ones."""
    best: dict[int, Rollout] = {}
    for rollout in rollouts:
        known = best.get(rollout.group)
        if known is None or rollout.final_reward > known.final_reward:
            best[rollout.group] = rollout
    return list(best.values())


def rerendered(rollout: Rollout, codec: Codec, max_tokens: int | None = None) -> Rollout:
    """The rollout with the rows that a text agent with these words would have got.

    Its own token ids are not read, so the run may be another model's. Raises ValueError if the
    conversation is not one of a game, or has a row of more than `max_tokens`.
    """
    transcript = Transcript(codec)
    for messages, turns in rollout.conversations():
        answers = [n for n, message in enumerate(messages, 1) if message["role"] == "assistant"]
        if [end for _, _, end in turns] != answers:
            raise ValueError("the conversation has another number of actions than the game")
        transcript.restart("note" if turns and turns[0][1].index else "episode")
        for before, (episode, step, end) in zip([0, *answers], turns, strict=False):
            *conversation, answer = messages[:end]
            transcript.observe(conversation, end - 1 - before)
            action = GenerationResult(rollout.session_id, None, None, answer["content"])
            transcript.act(action, episode.index, step.index, answer)
    if any(max_tokens is not None and len(row.token_ids) > max_tokens for row in transcript.rows):
        raise ValueError("a row is longer than max_rollout_tokens")
    rows = tuple(
        row.finished(rollout.session_id, rollout.group, rollout.index, row.spans)
        for row in transcript.rows
    )
    return replace(rollout, rows=rows)
