"""The files of a version of the weights, against those that transformers writes."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from agentsgym.generation.models import FAMILIES
from agentsgym.generation.vllm import weight_files
from agentsgym.generation.vllm.weight_files import (
    ShardFiles,
    WeightFiles,
    is_sharded,
    save,
    whole_weights,
)
from agentsgym.generation.vllm.weights import WeightSyncError
from family_models import family_model

QUICK = {"llama", "qwen3_moe", "deepseek_v3", "gpt_oss"}
EACH = [
    pytest.param(family.model_type, marks=[] if family.model_type in QUICK else pytest.mark.slow)
    for family in FAMILIES
]


def stored(folder):
    found = {}
    for file in folder.glob("*.safetensors"):
        found |= load_file(file)
    return found


def assert_equal(ours, theirs):
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


@pytest.mark.parametrize("name", EACH)
def test_the_weights_of_each_family_are_those_of_its_checkpoints(name, tmp_path):
    model = family_model(name)
    files = ShardFiles(model, tmp_path / "ours", shard_bytes=1)
    for key, tensor in whole_weights(model):
        files.add(key, tensor)
    files.finish()
    model.save_pretrained(tmp_path / "theirs")
    assert_equal(stored(tmp_path / "ours"), stored(tmp_path / "theirs"))
    index = json.loads((tmp_path / "ours" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(stored(tmp_path / "ours"))
    assert len(set(index["weight_map"].values())) > 2


def test_transformers_reads_what_we_write(model, tmp_path):
    save(model, tmp_path)
    assert [file.name for file in tmp_path.glob("*.safetensors")] == ["model.safetensors"]
    read = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_equal(read.state_dict(), model.state_dict())


def test_servers_in_bfloat16_get_bfloat16_but_for_vectors_and_routers(tmp_path):
    model = family_model("qwen3_moe")
    save(model, tmp_path / "half", dtype=torch.bfloat16)
    save(model, tmp_path / "whole")
    half, whole = stored(tmp_path / "half"), stored(tmp_path / "whole")
    assert set(half) == set(whole)
    kept = {name for name, tensor in half.items() if tensor.dtype == torch.float32}
    assert kept == {name for name in half if "norm" in name or ".mlp.gate." in name}
    for name, tensor in half.items():
        assert torch.equal(tensor, whole[name].to(tensor.dtype)), name


def test_the_files_are_no_wider_than_the_model(model, tmp_path):
    save(copy.deepcopy(model).bfloat16(), tmp_path, dtype=torch.float32)
    assert {tensor.dtype for tensor in stored(tmp_path).values()} == {torch.bfloat16}


def test_a_process_that_does_not_write_leaves_a_whole_model_alone(model, tmp_path):
    files = WeightFiles()
    assert files.write(model, 1, tmp_path, "base", writes=False) is None
    assert list(tmp_path.iterdir()) == []
    assert files.bytes is None


class Shard(torch.nn.Parameter):
    """A parameter of which each process has a part, and the number of times it was gathered."""

    gathered = 0

    def full_tensor(self):
        Shard.gathered += 1
        return self.data


@pytest.mark.parametrize("writes", [True, False])
def test_after_an_error_the_other_weights_are_still_gathered(
    model, tmp_path, monkeypatch, writes
) -> None:
    """Other processes would wait for them for ever."""
    sharded = copy.deepcopy(model)
    layer = sharded.model.layers[0].mlp
    names = ("gate_proj", "up_proj", "down_proj")
    for name in names:
        projection = getattr(layer, name)
        projection.weight = Shard(projection.weight.data)
    Shard.gathered = 0
    monkeypatch.setattr(weight_files, "SHARD_BYTES", 1)
    blocked = tmp_path / "a file"
    blocked.touch()
    files = WeightFiles()
    if writes:
        with pytest.raises(OSError, match="a file"):
            files.write(sharded, 1, blocked, "base")
    else:
        assert files.write(sharded, 1, blocked, "base", writes=False) is None
    assert Shard.gathered == len(names)


def test_a_version_that_could_not_be_written_takes_no_room(model, tmp_path, monkeypatch):
    monkeypatch.setattr(weight_files, "SHARD_BYTES", 1)
    end, count = ShardFiles._end_shard, []

    def full_after_one(self):
        if self._count:
            count.append(len(list(tmp_path.rglob("*.safetensors"))))
            raise OSError("No space left on device")
        end(self)

    monkeypatch.setattr(ShardFiles, "_end_shard", full_after_one)
    with pytest.raises(OSError, match="No space"):
        WeightFiles().write(model, 1, tmp_path, "base")
    assert count == [1] and list(tmp_path.iterdir()) == []


def test_matrices_that_servers_keep_in_float32_are_not_narrowed(model, tmp_path):
    files = ShardFiles(model, tmp_path, dtype=torch.bfloat16)
    names = ("layers.0.mamba.A_log", "layers.0.moe_statics.e_score_correction_bias")
    for name in (*names, "layers.0.mamba.in_proj.weight"):
        files.add(name, torch.ones(2, 3))
    files.finish()
    kept = {name for name, tensor in stored(tmp_path).items() if tensor.dtype == torch.float32}
    assert kept == set(names)


def test_zero3_is_refused(model):
    sharded = copy.deepcopy(model)
    sharded.model.embed_tokens.weight.ds_id = 0
    with pytest.raises(WeightSyncError, match=r"ZeRO-3 shards the model; .* fsdp_version: 2"):
        is_sharded(sharded)


def test_fsdp1_is_refused(model):
    class FullyShardedDataParallel(torch.nn.Module):
        pass

    wrapped = copy.deepcopy(model)
    wrapped.model.layers[0].wrapper = FullyShardedDataParallel()
    with pytest.raises(WeightSyncError, match=r"FSDP1 shards the model; .* fsdp_version: 2"):
        is_sharded(wrapped)
