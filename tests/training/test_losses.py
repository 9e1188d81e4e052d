"""The tables of loss types and ratio scopes: whole entries only, and all that TRL has."""

import importlib
import inspect
import re
from dataclasses import fields, replace

import pytest
import trl.trainer.grpo_trainer as trl_trainer

from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.loss.objective import settings_of
from agentsgym.training.loss.ratios import RATIO_SCOPES
from agentsgym.types.names import table

PARTS = {
    "help": "'nothing at all'",
    "source": "'nobody'",
    "formula": "lambda logps, ratio, chunk: -logps",
    "weights": "PER_TOKEN",
    "clipped": "beyond_both",
}
SCRATCH = """
from agentsgym.training.loss.losses import LossType, beyond_both
from agentsgym.training.loss.weights import PER_TOKEN
from agentsgym.types.names import table

LOSSES = table(LossType(name="scratch", {parts}))
"""


@pytest.fixture
def import_scratch(tmp_path, monkeypatch):
    """Import a module that defines a loss type with these parts."""
    monkeypatch.syspath_prepend(tmp_path)

    def load(name, parts):
        written = ", ".join(f"{part}={value}" for part, value in parts.items())
        (tmp_path / f"{name}.py").write_text(SCRATCH.format(parts=written))
        return importlib.import_module(name)

    return load


def test_a_name_stands_once():
    with pytest.raises(ValueError, match="LossType 'grpo' stands twice"):
        table(LOSSES["grpo"], LOSSES["dapo"], replace(LOSSES["sapo"], name="grpo"))


def test_a_table_is_read_only():
    with pytest.raises(TypeError):
        LOSSES["scratch"] = LOSSES["grpo"]


def test_each_loss_type_of_trl_is_offered_or_refused_by_name():
    source = inspect.getsource(trl_trainer)
    compared = re.findall(r"loss_type (?:==|in) (\"\w+\"|\[.*?\])", source)
    theirs = set(re.findall(r"\"(\w+)\"", " ".join(compared)))
    assert theirs <= {*LOSSES, "bnpo"}  # normalized per micro-batch
    assert theirs >= {"grpo", "dapo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo"}


@pytest.mark.parametrize("name", LOSSES)
def test_formulas_read_settings_that_exist(tmp_path, name):
    assert set(LOSSES[name].settings) <= {field.name for field in fields(GRPOEnvConfig)}
    args = GRPOEnvConfig(str(tmp_path), use_cpu=True, loss_type=name, max_rollout_tokens=9)
    made = settings_of(args, 0.1, 0.3)
    assert list(made.loss_settings) == list(LOSSES[name].settings)
    bounds = {k: v for k, v in made.loss_settings.items() if k.startswith("epsilon")}
    assert bounds.items() <= {"epsilon": 0.1, "epsilon_high": 0.3}.items()


def test_an_unknown_loss_type_has_no_formula(tmp_path):
    args = GRPOEnvConfig(str(tmp_path), use_cpu=True)
    args.loss_type = "no such loss"
    with pytest.raises(KeyError, match="no such loss"):
        settings_of(args, 0.2, 0.2)


@pytest.mark.parametrize("name", LOSSES)
def test_the_ratio_of_whole_rollouts_is_asked_for_where_the_formula_reads_it(tmp_path, name):
    reads = "rollout_sum(" in inspect.getsource(LOSSES[name].formula)
    assert LOSSES[name].needs_rollout_ratio == reads
    for scope in RATIO_SCOPES.values():
        made = replace(
            settings_of(GRPOEnvConfig(str(tmp_path), use_cpu=True), 0.2, 0.2),
            loss=LOSSES[name],
            scope=scope,
        )
        assert made.needs_rollout_ratio == (reads or scope.name == "rollout")


def test_help_names_what_there_is():
    told = {field.name: str(field.metadata.get("help")) for field in fields(GRPOEnvConfig)}
    assert all(
        f"'{name}', {scope.help}" in told["ratio_scope"] for name, scope in RATIO_SCOPES.items()
    )
