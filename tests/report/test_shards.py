"""Large generations: shards of bounded size, their index, and which of them are kept."""

import gzip
import json
from dataclasses import replace
from enum import Enum, IntEnum
from pathlib import Path
from uuid import UUID

import pytest

from agentsgym import ScriptedAgent
from agentsgym.runs.files import (
    RolloutWriter,
    RunDirectory,
    drop_rollouts_from,
    read_lines,
    shard,
    shard_index,
)
from agentsgym.runs.files.atomic import DamagedFile
from agentsgym.runs.files.evaluation import EvaluationDirectory
from agentsgym.runs.files.retention import KeepRollouts, StoredShard
from agentsgym.runs.files.rollouts import write_set
from agentsgym.runs.files.shard import read_group, read_shard
from agentsgym.runs.files.shard_index import index_path, read_index
from agentsgym.runs.warm_start import stored as warm_start_stored
from agentsgym.training.warm_start_settings import WarmStartSettings
from agentsgym.types import text as texts
from agentsgym.types.text import MASK
from helpers import CountdownEnv


@pytest.fixture
def played(plain_tokenizer):
    """Twelve rollouts in four groups."""
    env = CountdownEnv(plain_tokenizer)
    tasks = [{"rewards": [0.5, float(n)]} for n in range(4)]
    return env.run_trial(tasks, ScriptedAgent(["one", "two"]), 3).rollouts


@pytest.fixture
def small(monkeypatch, played):
    """Blocks of two rollouts and shards of six."""
    size = len(shard.to_line(shard.RolloutLine(played[0], "train", 0)))
    monkeypatch.setattr(shard, "BLOCK_BYTES", 2 * size - size // 2)
    monkeypatch.setattr(shard, "SHARD_BYTES", 6 * size - size // 2)


def write(root, rollouts, step=0, keep=None, **info):
    writer = RolloutWriter(root) if keep is None else RolloutWriter(root, keep)
    writer(rollouts, {"phase": "train", "step": step, "advantages": None} | info)


def names(root):
    return sorted(path.name for path in (Path(root) / "rollouts").iterdir())


@pytest.mark.usefixtures("small")
def test_a_large_generation_has_several_shards_with_their_indexes(tmp_path, played):
    write(tmp_path, played, step=7)
    assert names(tmp_path) == [
        "train-000007-p1.index.json", "train-000007-p1.jsonl.gz", "train-000007.index.json",
        "train-000007.jsonl.gz",
    ]  # fmt: skip
    shards = list(RunDirectory(tmp_path).shards())
    assert [(phase, step) for phase, step, _ in shards] == [("train", 7)] * 2
    assert [len(gzip.decompress(path.read_bytes()).splitlines()) for *_, path in shards] == [6, 6]
    assert [line.rollout for line in read_lines(tmp_path)] == list(played)
    first = json.loads(index_path(shards[0][2]).read_text())
    assert first["schema"] == 1 and first["shard"] == "train-000007.jsonl.gz"
    assert [len(block["rollouts"]) for block in first["blocks"]] == [2, 2, 2]
    assert first["blocks"][1]["rollouts"][0] == {
        "group": 0, "index": 2, "session_id": played[2].session_id,
    }  # fmt: skip


def test_a_small_generation_has_one_shard_and_no_index(tmp_path, played):
    write(tmp_path, played, rank=2, dataset="a.b/c")
    assert names(tmp_path) == ["train-000000-r2.a.b%2Fc.jsonl.gz"]


@pytest.mark.usefixtures("small")
def test_parts_of_processes_and_sets_do_not_get_mixed_up(tmp_path, played):
    for rank in (1, 0):
        write(tmp_path, played, rank=rank)
        write(tmp_path, played, rank=rank, phase="eval", dataset="p1")
    found = [path.name for _, _, path in RunDirectory(tmp_path).shards()]
    assert found == [
        f"{name}.jsonl.gz"
        for name in (
            "train-000000", "train-000000-p1", "train-000000-r1", "train-000000-r1-p1",
            "eval-000000.p1", "eval-000000-p1.p1", "eval-000000-r1.p1", "eval-000000-r1-p1.p1",
        )
    ]  # fmt: skip
    assert {line.dataset for line in read_lines(tmp_path, "eval")} == {"p1"}


@pytest.mark.usefixtures("small")
def test_a_generation_that_is_written_again_leaves_no_old_part(tmp_path, played):
    write(tmp_path, played)
    write(tmp_path, played[:2])
    assert names(tmp_path) == ["train-000000.jsonl.gz"]
    write(tmp_path, played, step=3)
    drop_rollouts_from(tmp_path, 1)
    assert names(tmp_path) == ["train-000000.jsonl.gz"]


@pytest.mark.usefixtures("small")
def test_a_generation_appears_as_a_whole_or_not_at_all(tmp_path, played, monkeypatch):
    def failing():
        yield from (shard.RolloutLine(rollout, "train", 0) for rollout in played)
        assert not list(RunDirectory(tmp_path).shards())
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_set(RunDirectory(tmp_path), "train", 0, failing())
    assert names(tmp_path) == []

    write(tmp_path, played)
    second, first = sorted((tmp_path / "rollouts").glob("*.gz"))
    assert second.name.startswith("train-000000-p1")
    first.unlink()  # as if the run had been killed before the first part appeared
    assert not list(read_lines(tmp_path))
    write(tmp_path, played[:2])
    assert names(tmp_path) == ["train-000000.jsonl.gz"]


@pytest.mark.usefixtures("small")
def test_a_finished_evaluation_replaces_its_parts(tmp_path, played):
    directory = EvaluationDirectory(tmp_path)
    for start in (0, 6):
        directory.write_part(played[start : start + 6])
    assert list(directory.rollouts()) == list(played)
    directory.write_all(played)
    assert [name for name in names(tmp_path) if name.endswith("gz")] == [
        "eval-000000-p1.jsonl.gz", "eval-000000.jsonl.gz",
    ]  # fmt: skip
    assert list(directory.rollouts()) == list(played)


@pytest.mark.usefixtures("small")
def test_one_game_of_a_group_is_imitated_though_two_shards_have_it(tmp_path, played, monkeypatch):
    monkeypatch.setattr(warm_start_stored, "rerendered", lambda rollout, codec, most: rollout)
    order = (0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11)  # a group in both shards
    write(tmp_path, [played[n] for n in order])
    config = WarmStartSettings(source="rollouts", run=str(tmp_path))
    games = warm_start_stored.stored_games(config, None, lambda rollout: True, None, print)
    assert sorted(game.group for game in games) == [0, 1, 2, 3]


# -- the index ------------------------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path, played, small, monkeypatch):
    """A shard of three blocks; the last has the rollouts 1/1 and 1/2."""
    write(tmp_path, played)
    return tmp_path / "rollouts" / "train-000000.jsonl.gz"


def group(path, number):
    return [(line.rollout.group, line.rollout.index) for line in read_group(path, number)]


def test_a_group_is_read_without_the_other_blocks(indexed):
    data = bytearray(indexed.read_bytes())
    offsets = [block.offset for block in read_index(indexed).blocks]
    data[offsets[0] + 20 : offsets[1]] = bytes(offsets[1] - offsets[0] - 20)
    indexed.write_bytes(data)
    assert group(indexed, 1) == [(1, 0), (1, 1), (1, 2)]
    with pytest.raises(DamagedFile, match="is damaged"):
        group(indexed, 0)


BAD = {
    "no json": lambda data: "{",
    "another size": lambda data: json.dumps(data | {"bytes": 3}),
    "newer": lambda data: json.dumps(data | {"schema": 99}),
    "no blocks": lambda data: json.dumps(data | {"blocks": []}),
    "not ascending": lambda data: json.dumps(data | {"blocks": data["blocks"][::-1]}),
    "outside": lambda data: json.dumps(
        data | {"blocks": [*data["blocks"], {"offset": 1 << 40, "rollouts": []}]}
    ),
    "a text": lambda data: json.dumps(data | {"blocks": "abc"}),
    "infinite": lambda data: json.dumps(data | {"bytes": float("inf")}),
    "deep": lambda data: "[" * 100_000,
}


@pytest.mark.parametrize("fault", BAD)
def test_an_index_that_does_not_fit_is_ignored(indexed, fault):
    path = index_path(indexed)
    path.write_text(BAD[fault](json.loads(path.read_text())))
    assert read_index(indexed) is None
    assert group(indexed, 1) == [(1, 0), (1, 1), (1, 2)]


def test_a_block_that_would_fill_the_memory_is_not_read_at_once(indexed, monkeypatch):
    monkeypatch.setattr(shard_index, "_MOST_OF_A_BLOCK", 100)
    assert read_index(indexed) is None
    assert group(indexed, 1) == [(1, 0), (1, 1), (1, 2)]


def test_without_an_index_a_group_is_found_too(indexed):
    index_path(indexed).unlink()
    assert group(indexed, 0) == [(0, 0), (0, 1), (0, 2)]


def test_offsets_that_lie_are_damage(indexed):
    path = index_path(indexed)
    data = json.loads(path.read_text())
    data["blocks"][1]["offset"] += 3
    path.write_text(json.dumps(data))
    with pytest.raises(DamagedFile, match="is damaged"):
        group(indexed, 0)


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_torn_end_costs_only_the_lines_behind_it(indexed, played, cut):
    indexed.write_bytes(indexed.read_bytes()[:-cut])
    found = []
    with pytest.raises(DamagedFile, match="is damaged after line"):
        found.extend(iter_into(found, read_shard(indexed)))
    assert len(found) >= 4 and found == list(played[: len(found)])


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_shard_that_was_cut_off_at_the_end_of_a_block_is_damaged(indexed, played, blocks):
    """All that is left can be read; only the index knows that there was more."""
    offset = read_index(indexed).blocks[blocks].offset
    indexed.write_bytes(indexed.read_bytes()[:offset])
    found = []
    with pytest.raises(DamagedFile, match="it ends before the last block of its index"):
        iter_into(found, read_shard(indexed))
    assert found and found == list(played[: len(found)])


def test_a_shard_that_is_deleted_while_it_is_read_is_read_to_its_end(indexed):
    """As by the run itself, which keeps only its newest generations."""
    found, whole = [], [line.rollout for line in read_shard(indexed)]
    for line in read_shard(indexed):
        found.append(line.rollout)
        shard.remove_shard(indexed)
    assert len(found) > 1 and found == whole


def iter_into(found, lines):
    for line in lines:
        found.append(line.rollout)
    return ()


# -- which are kept -------------------------------------------------------------------------------


def stored(*steps, size=100):
    return [StoredShard(0, step, Path(f"{step}-{part}"), size) for step in steps for part in (0, 1)]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [0, 2, 4, 6, 8, 10]),
        ({"last": 2}, [8, 10]),
        ({"every": 4}, [0, 4, 8, 10]),
        ({"last": 2, "every": 6}, [0, 6, 8, 10]),
        ({"gigabytes": 700e-9}, [6, 8, 10]),
        ({"gigabytes": 1e-9}, [10]),
        ({"last": 4, "gigabytes": 500e-9}, [8, 10]),
        ({"every": 4, "gigabytes": 500e-9}, [8, 10]),
    ],
)
def test_the_settings_name_the_generations_that_stay(settings, kept):
    shards = stored(0, 2, 4, 6, 8, 10)
    gone = KeepRollouts(**settings).outdated(shards)
    assert sorted({one.step for one in shards if one.path not in gone}) == kept
    assert len(gone) == len(shards) - 2 * len(kept)


@pytest.mark.usefixtures("small")
def test_a_writer_deletes_its_own_old_generations_only(tmp_path, played):
    keep = KeepRollouts(last=1)
    for phase in ("before", "eval", "warmstart"):
        write(tmp_path, played[:1], phase=phase)
    write(tmp_path, played[:1], rank=1)
    for step in (0, 1):
        write(tmp_path, played, step=step, keep=keep)
    assert [path.name for phase, _, path in RunDirectory(tmp_path).shards()] == [
        "before-000000.jsonl.gz", "warmstart-000000.jsonl.gz", "train-000000-r1.jsonl.gz",
        "eval-000000.jsonl.gz", "train-000001.jsonl.gz", "train-000001-p1.jsonl.gz",
    ]  # fmt: skip
    assert not [name for name in names(tmp_path) if name.startswith("train-000000.")]


def test_the_first_process_deletes_what_processes_that_are_gone_have_left():
    """A resumed run may have fewer of them. One that wrote in the last two generations is there."""
    written = {0: range(5), 1: range(4), 2: range(3), 3: range(1)}
    shards = [
        StoredShard(rank, step, Path(f"{rank}-{step}"), 100)
        for rank, steps in written.items()
        for step in steps
    ]
    keep = KeepRollouts(last=2)
    gone = {rank: [path.name for path in keep.outdated(shards, rank)] for rank in (0, 1, 2)}
    assert gone[0] == ["0-0", "0-1", "0-2", "2-0", "2-1", "2-2", "3-0"]
    assert gone[1] == ["1-0", "1-1", "1-2"]


def test_the_gigabytes_are_of_all_processes_together():
    shards = [
        StoredShard(rank, step, Path(f"{rank}-{step}"), 100)
        for rank in range(4)
        for step in range(6)
    ]
    keep = KeepRollouts(gigabytes=900e-9)
    gone = [path.name for rank in range(4) for path in keep.outdated(shards, rank)]
    assert gone == [f"{rank}-{step}" for rank in range(4) for step in range(4)]


def test_a_shard_that_another_process_deletes_meanwhile_does_not_matter(
    tmp_path, played, monkeypatch
):
    write(tmp_path, played, rank=1)
    theirs = RunDirectory(tmp_path).shard("train", 0, rank=1)
    listed = list(RunDirectory(tmp_path).training_shards())
    theirs.unlink()
    monkeypatch.setattr(RunDirectory, "training_shards", lambda self: iter(listed))
    write(tmp_path, played, step=1, keep=KeepRollouts(last=1))


# -- the text of a line ---------------------------------------------------------------------------


@pytest.mark.parametrize("value", [2**70, "\ud800", float("nan"), {3: 4}, (1, 2), 1e300])
def test_every_value_can_be_stored(tmp_path, played, value):
    episode = played[0].episodes[0]
    step = replace(episode.steps[0], info={"value": value}, observation="\ud800 é", reward=1 / 3)
    episodes = (replace(episode, steps=(step, *episode.steps[1:])), *played[0].episodes[1:])
    write(tmp_path, [replace(played[0], episodes=episodes)])
    (line,) = read_lines(tmp_path)
    read = line.rollout.episodes[0].steps[0]
    assert read.reward == 1 / 3 and read.observation == "\ud800 é"


class Color(Enum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


@pytest.mark.parametrize("beside", ["text", {7}], ids=["of JSON's types", "of others"])
def test_enums_and_uuids_are_stored_alike_whatever_is_beside_them(tmp_path, played, beside):
    name = UUID(int=7)
    info = {"color": Color.RED, "one": Number.ONE, "name": name, "beside": beside}
    episode = played[0].episodes[0]
    steps = (replace(episode.steps[0], info=info), *episode.steps[1:])
    episodes = (replace(episode, steps=steps), *played[0].episodes[1:])
    write(tmp_path, [replace(played[0], episodes=episodes)])
    (line,) = read_lines(tmp_path)
    read = line.rollout.episodes[0].steps[0].info
    assert (read["color"], read["one"], read["name"]) == ("red", 1, str(name))


@pytest.mark.parametrize(
    "secret", ["sesame-öffne", 'quo"ted\\se\ncret', '"hunter2', "nhunter2", "\ud800-half"]
)
@pytest.mark.parametrize("beside", ["text", {7}], ids=["of JSON's types", "of others"])
def test_secrets_are_masked_in_what_is_stored(tmp_path, played, monkeypatch, secret, beside):
    """Also those that JSON writes in another way, and those of which an escape may be a part."""
    monkeypatch.setattr(texts, "_KNOWN", {secret})
    task = {
        "rewards": [], "key": f"a {secret} b", secret: 1, "at the end": secret,
        "line": "\nhunter2", "beside": beside,
    }  # fmt: skip
    write(tmp_path, [replace(played[0], task_data=task, error=f"no {secret}")])
    stored = next(read_lines(tmp_path)).rollout
    if secret != "\ud800-half":  # in free-form values it is not what it was
        assert stored.task_data["key"] == f"a {MASK} b" and stored.task_data["at the end"] == MASK
        assert MASK in stored.task_data and stored.task_data["line"] == "\nhunter2"
    assert stored.error == f"no {MASK}"


@pytest.mark.parametrize("secret", ["333333", "token_ids", "hunter2"])
def test_a_secret_that_is_a_part_of_a_number_or_a_key_damages_no_shard(
    tmp_path, played, monkeypatch, secret
):
    monkeypatch.setattr(texts, "_KNOWN", {secret})
    episode = played[0].episodes[0]
    steps = (replace(episode.steps[0], reward=1 / 3, action=secret), *episode.steps[1:])
    episodes = (replace(episode, steps=steps), *played[0].episodes[1:])
    write(tmp_path, [replace(played[0], episodes=episodes)])
    (line,) = read_lines(tmp_path)
    step = line.rollout.episodes[0].steps[0]
    assert (step.reward, step.action) == (1 / 3, MASK) and line.rollout.rows == played[0].rows
