"""TRL's private shapes are as trl_base takes them, and its losses are ours."""

import inspect
import re

import pytest
import torch
from trl import GRPOTrainer
from trl.trainer import utils
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.trl_base import TRL_HAS_HEAD, TRLBase


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_prepare_inputs", ["self", "generation_batch"]),
        ("_generate_and_score_completions", ["self", "inputs"]),
        ("training_step", ["self", "model", "inputs", "num_items_in_batch"]),
        ("_save_checkpoint", ["self", "model", "trial"]),
        ("_load_from_checkpoint", ["self", "resume_from_checkpoint", "model"]),
        ("_load_optimizer_and_scheduler", ["self", "checkpoint"]),
        ("_load_best_model", ["self"]),
        ("_determine_best_metric", ["self", "metrics", "trial"]),
        ("_get_output_dir", ["self", "trial"]),
        ("log", ["self", "logs", "start_time"]),
    ],
)
def test_signatures_that_we_override_or_call(name, parameters):
    assert list(inspect.signature(getattr(GRPOTrainer, name)).parameters) == parameters


def test_each_private_method_that_we_override_is_there():
    ours = {name for name in vars(TRLBase) if name.startswith("_") and name[1] != "_"}
    assert {"_run_epoch", "_maybe_log_save_evaluate"} <= ours
    assert not {name for name in ours if not callable(getattr(GRPOTrainer, name, None))}


@pytest.mark.skipif(not TRL_HAS_HEAD, reason="before TRL 1.16 the models get our head")
def test_trls_head_asks_whether_there_is_triton():
    assert list(inspect.signature(utils._use_triton).parameters) == ["device"]


def test_trl_shuffles_and_splits_what_we_hand_over():
    """A tensor first, then lists; `split_tensor_dict` takes equal parts."""
    batch = {"rollout_index": torch.arange(6), "rollouts": list("abcdef")}
    mixed = shuffle_sequence_dict(batch)
    assert ["abcdef"[i] for i in mixed["rollout_index"]] == mixed["rollouts"]
    parts = split_tensor_dict(mixed, 3)
    assert [len(part["rollouts"]) for part in parts] == [2, 2, 2]
    assert sorted(r for part in parts for r in part["rollouts"]) == list("abcdef")


def test_each_loss_type_of_trl_is_offered_or_refused_by_name():
    source = inspect.getsource(inspect.getmodule(GRPOTrainer))
    compared = re.findall(r"loss_type (?:==|in) (\"\w+\"|\[.*?\])", source)
    theirs = set(re.findall(r"\"(\w+)\"", " ".join(compared)))
    assert theirs <= {*LOSSES, "bnpo"}  # normalized per micro-batch
    assert theirs >= {"grpo", "dapo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo"}
