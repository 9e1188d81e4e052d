"""The files of a version of the weights, against those that transformers writes."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from agentsgym.generation.vllm.weight_files import WeightFiles, is_sharded, save
from agentsgym.generation.vllm.weights import WeightSyncError
from family_models import family_model


def stored(folder):
    tensors = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
    return tensors


def assert_equal(ours, theirs):
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


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


def test_state_matrices_of_mamba_stay_in_float32(tmp_path):
    save(family_model("granitemoehybrid"), tmp_path, dtype=torch.bfloat16)
    kept = {name for name, tensor in stored(tmp_path).items() if tensor.dtype == torch.float32}
    assert any(name.endswith("A_log") for name in kept)
    assert not any("_proj.weight" in name for name in kept)


def test_a_process_that_does_not_write_leaves_a_whole_model_alone(model, tmp_path):
    files = WeightFiles()
    assert files.write(model, 1, tmp_path, "base", writes=False) is None
    assert list(tmp_path.iterdir()) == []


class Shard(torch.nn.Parameter):
    """A parameter of which each process has a part, and the number of times it was gathered."""

    gathered = 0

    def full_tensor(self):
        Shard.gathered += 1
        return self.data


@pytest.mark.parametrize("writes", [True, False])
def test_after_an_error_the_other_weights_are_still_gathered(model, tmp_path, writes) -> None:
    """Other processes would wait for them for ever."""
    sharded = copy.deepcopy(model)
    layer = sharded.model.layers[0].mlp
    names = ("gate_proj", "up_proj", "down_proj")
    for name in names:
        projection = getattr(layer, name)
        projection.weight = Shard(projection.weight.data)
    Shard.gathered = 0
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
    def full(path, **_):
        (tmp_path / path / "model.safetensors").parent.mkdir()
        (tmp_path / path / "model.safetensors").touch()
        raise OSError("No space left on device")

    monkeypatch.setattr(model, "save_pretrained", full)
    with pytest.raises(OSError, match="No space"):
        WeightFiles().write(model, 1, tmp_path, "base")
    assert list(tmp_path.iterdir()) == []


def test_other_ways_to_shard_a_model_are_refused(model):
    class FullyShardedDataParallel(torch.nn.Module):
        pass

    zero3, fsdp1 = copy.deepcopy(model), copy.deepcopy(model)
    zero3.model.embed_tokens.weight.ds_id = 0
    fsdp1.model.layers[0].wrapper = FullyShardedDataParallel()
    for sharded in (zero3, fsdp1):
        with pytest.raises(WeightSyncError, match="set fsdp_version: 2"):
            is_sharded(sharded)
