"""FSDP2 with vLLM servers, in two processes on the CPU, against the same with whole models."""

import pytest
import torch

from training.two import run_two

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return run_two("training.with_servers", tmp_path_factory.mktemp("sharded"))


def apart(first, second):
    return float((first - second).norm() / second.norm())


@pytest.mark.parametrize("adapter", ["", " adapter"])
def test_what_is_sharded_learns_what_a_whole_model_learns(two, adapter):
    for rank in two:
        sharded, whole = rank[f"sharded{adapter}"], rank[f"whole{adapter}"]
        assert (sharded["kinds"], whole["kinds"]) == ({"DTensor"}, {"Parameter"})
        assert len(whole["gradients"]) == 2
        for ours, theirs in zip(sharded["gradients"], whole["gradients"], strict=True):
            assert apart(ours, theirs) < 1e-5
        assert apart(sharded["weights"], whole["weights"]) < 1e-7
        assert sharded["played"] == whole["played"]
        for ours, theirs in zip(sharded["logs"], whole["logs"], strict=True):
            assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-6)


def test_written_weights_are_those_of_the_model_bit_for_bit(two):
    for rank in two:
        named, written = (rank["sharded"][key] for key in ("named", "written"))
        assert {"model.embed_tokens.weight", "lm_head.weight"} <= set(written) == set(named)
        for name, tensor in written.items():
            assert torch.equal(tensor, named[name]), name


def test_a_written_adapter_is_that_of_the_model_bit_for_bit(two):
    for rank in two:
        named, written = (rank["sharded adapter"][key] for key in ("named", "written"))
        named = {name.replace(".default.", "."): tensor for name, tensor in named.items()}
        trained = {name for name in named if "lora_" in name}
        assert set(written) == trained == set(rank["whole adapter"]["written"])
        for name in trained:
            assert torch.equal(written[name], named[name]), name


def test_servers_sampled_from_the_written_weights(two):
    for rank in two:
        for line in rank["sharded"]["logs"]:
            assert line["sampler/logp_difference"] < 1e-5


def test_a_full_disk_ends_all_processes(two):
    for kind in ("whole", "sharded"):
        assert two[0][kind]["full disk"] == ("OSError", "No space left on device")
        assert two[1][kind]["full disk"] == ("WeightSyncError", "rank 0: No space left on device")
