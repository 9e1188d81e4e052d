"""TRL's private shapes are as trl_base takes them, and only trl_base depends on them."""

import ast
import inspect
from pathlib import Path

import pytest
import torch
import transformers
from trl import GRPOTrainer
from trl.trainer import utils
from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

import agentsgym
from agentsgym.training.trl_base import TRL_HAS_HEAD, TRLBase

PACKAGE = Path(agentsgym.__file__).parent


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_prepare_inputs", ["self", "generation_batch"]),
        ("_generate_and_score_completions", ["self", "inputs"]),
        ("_compute_loss", ["self", "model", "inputs"]),
        ("training_step", ["self", "model", "inputs", "num_items_in_batch"]),
        ("_save_checkpoint", ["self", "model", "trial"]),
        ("_load_from_checkpoint", ["self", "resume_from_checkpoint", "model"]),
        ("_load_optimizer_and_scheduler", ["self", "checkpoint"]),
        ("_load_best_model", ["self"]),
        ("_determine_best_metric", ["self", "metrics", "trial"]),
        ("_track_num_input_tokens", ["self", "inputs"]),
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


def private_names_of_trl():
    """Private methods of TRL's trainer and its bases, and private attributes that they set."""
    names = {name for name in dir(GRPOTrainer) if name.startswith("_") and name[1] != "_"}
    for module in (inspect.getmodule(GRPOTrainer), transformers.trainer):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            if stored and node.attr.startswith("_"):
                names.add(node.attr)
    return names


def touches(path, owners):
    """Private names that a module reads, sets or defines of these owners."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in owners and node.attr.startswith("_"):
                yield node.attr
        elif isinstance(node, ast.FunctionDef) and "self" in owners:
            yield node.name


def test_no_other_module_touches_a_private_name_of_trls_trainer():
    private = private_names_of_trl()
    assert {"_step", "_buffered_inputs", "_metrics", "_logs", "_tokenizer"} <= private
    compat = set(touches(PACKAGE / "training" / "trl_base.py", {"self"}))
    assert {"_step", "_buffered_inputs", "_save_checkpoint"} <= compat & private
    assert not set(touches(PACKAGE / "training" / "trainer.py", {"self"})) & private
    for folder in ("training", "runs"):
        for path in (PACKAGE / folder).rglob("*.py"):
            assert not set(touches(path, {"trainer"})) & private, path


def test_trl_shuffles_and_splits_what_we_hand_over():
    """A tensor first, then lists; `split_tensor_dict` takes equal parts."""
    batch = {"rollout_index": torch.arange(6), "rollouts": list("abcdef")}
    mixed = shuffle_sequence_dict(batch)
    assert ["abcdef"[i] for i in mixed["rollout_index"]] == mixed["rollouts"]
    parts = split_tensor_dict(mixed, 3)
    assert [len(part["rollouts"]) for part in parts] == [2, 2, 2]
    assert sorted(r for part in parts for r in part["rollouts"]) == list("abcdef")
