"""Runs that train a LoRA adapter, and the commands on their adapters."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from agentsgym.envs import ConfigError
from agentsgym.generation.embedded.precision import ModelCopy
from agentsgym.generation.settings import EngineSettings
from agentsgym.generation.vllm.launcher import LaunchFailed
from agentsgym.generation.vllm.weight_files import served_model
from agentsgym.runs import (
    ModelSettings,
    Progress,
    load_config,
    load_run,
    parse_config,
    players,
    train_run,
)
from agentsgym.runs.auto import resolved
from agentsgym.runs.files import read_metrics
from agentsgym.runs.models import Use, load_model, merge_adapter
from agentsgym.runs.trust import with_trust
from agentsgym.runs.weights import read_adapter
from helpers import random_llama

LORA = {
    "model.lora": {"r": 4},
    "model.dtype": "float32",
    "train.max_steps": 4,
    "train.save_steps": 2,
    "eval.rollouts": 8,
}
EVALUATION = Use(training=False, device="cpu", trust=True)


def trained_adapter(folder, base="model", lora=None, **model):
    """An adapter directory with weights that are not zero."""
    policy = load_model(
        ModelSettings(path=base, dtype="float32", lora=lora or {"r": 4}, **model),
        Use(training=True, device="cpu"),
    )
    torch.manual_seed(0)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.1)
    policy.model.save_pretrained(folder)
    return policy.model.eval()


def edited(folder, **changes):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def logits_of(model):
    with torch.no_grad():
        return model(input_ids=torch.arange(12)[None]).logits


@pytest.fixture
def adapter(workplace) -> Path:
    trained_adapter(workplace / "adapter")
    return Path("adapter")


def test_a_resumed_adapter_equals_an_uninterrupted_one(workplace):
    """Also with KL, whose reference is then the model below the adapter."""
    settings = LORA | {"train.beta": 0.1}
    train_run(load_config("toy.yaml", settings | {"output_dir": "whole"}))
    shutil.copytree("whole", "stopped")
    for name in ("model", "checkpoints/checkpoint-4", "summary.json"):
        path = Path("stopped") / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    train_run(load_run(Path("stopped")), resume=True)

    whole, stopped = (load_file(f"{run}/model/adapter_model.safetensors") for run in
                      ("whole", "stopped"))  # fmt: skip
    assert whole and all(torch.equal(whole[key], stopped[key]) for key in whole)
    assert any(value.abs().sum() > 0 for key, value in whole.items() if "lora_B" in key)
    lines = [[line["kl"] for line in read_metrics(Path(run) / "metrics.jsonl") if "kl" in line]
             for run in ("whole", "stopped")]  # fmt: skip
    assert lines[0] == lines[1] and lines[0][0] == pytest.approx(0, abs=1e-6) and lines[0][-1] > 0
    stored = {path.name for path in Path("whole/model").iterdir()}
    assert "adapter_model.safetensors" in stored and "tokenizer.json" in stored
    assert "model.safetensors" not in stored and "ref" not in stored
    assert read_adapter(Path("whole/model")).base == str(workplace / "model")


def test_auto_trains_a_stored_adapter_and_chooses_no_other(adapter):
    run = {"env": "Bandit", "model": str(adapter), "train": "auto"}
    chosen = resolved(parse_config(run), Progress())
    assert chosen.model.lora is None and chosen.warm_start.source == "teacher"
    assert "train.learning_rate" in chosen.chosen


def test_a_merged_model_gives_the_logits_of_the_adapter(adapter):
    expected = logits_of(exact(adapter))
    merged = merge_adapter(adapter, trust=True)
    assert merged == adapter / "merged" and not (merged / "adapter_config.json").exists()
    logits = logits_of(
        load_model(ModelSettings(path=str(merged), dtype="float32"), EVALUATION).model
    )
    base = logits_of(load_model(ModelSettings(path="model", dtype="float32"), EVALUATION).model)
    assert (expected - base).abs().max() > 1e-2
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {"target_modules": ["embed_tokens", "q_proj"]},
        {"target_modules": ["lm_head"]},
        {"target_modules": ["embed_tokens", "lm_head"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    ],
    ids=lambda changes: "+".join(name for names in changes.values() for name in names),
)
def test_an_adapter_of_the_embeddings_is_merged_as_it_computes(
    workplace, chat_tokenizer, changes, tied
):
    """Also where input and output share their weights."""
    from peft import LoraConfig, get_peft_model

    from agentsgym.runs.serve_model import load_engine

    base = random_llama(chat_tokenizer, tie_word_embeddings=tied)
    base.save_pretrained("model")
    model = get_peft_model(base, LoraConfig(r=4, task_type="CAUSAL_LM", **changes)).eval()
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    model.peft_config["default"].base_model_name_or_path = "model"
    model.save_pretrained("adapter", save_embedding_layers=False)
    expected = logits_of(exact("adapter"))
    torch.testing.assert_close(expected, logits_of(model), atol=1e-4, rtol=1e-4)
    settings = ModelSettings(path="adapter", dtype="float32")
    engine = load_engine(settings, EngineSettings(capacity=2), trust=True)
    torch.testing.assert_close(logits_of(engine.model), expected, atol=1e-4, rtol=1e-4)
    path = merge_adapter(Path("adapter"), Path("whole"), trust=True)
    torch.testing.assert_close(logits_of(exact(path)), expected, atol=1e-4, rtol=1e-4)


def exact(adapter):
    return load_model(ModelSettings(path=str(adapter), dtype="float32"), EVALUATION).model


def test_merge_keeps_the_dtype_of_the_base_models_files(workplace, tiny_llama):
    tiny_llama.to(torch.bfloat16).save_pretrained("model")
    trained_adapter(workplace / "adapter")
    merged = merge_adapter(Path("adapter"), Path("out"), trust=True)
    stored = load_file(merged / "model.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.bfloat16}


def test_weights_that_train_are_float32_and_a_frozen_base_is_not(workplace):
    training = Use(training=True, device="cpu")
    whole = load_model(ModelSettings(path="model", dtype="bfloat16"), training).model
    assert {p.dtype for p in whole.parameters()} == {torch.float32}
    section = ModelSettings(path="model", dtype="bfloat16", lora={"r": 2, "use_rslora": True})
    adapted = load_model(section, training).model
    assert {p.dtype for p in adapted.parameters() if p.requires_grad} == {torch.float32}
    assert {p.dtype for p in adapted.parameters() if not p.requires_grad} == {torch.bfloat16}
    assert adapted.peft_config["default"].use_rslora
    evaluated = load_model(ModelSettings(path="model", dtype="bfloat16"), EVALUATION).model
    assert {p.dtype for p in evaluated.parameters()} == {torch.bfloat16}


def test_an_evaluated_adapter_computes_as_the_copy_that_its_run_sampled_from(workplace):
    section = ModelSettings(path="model", dtype="bfloat16", lora={"r": 4})
    trained = load_model(section, Use(training=True, device="cpu")).model
    torch.manual_seed(0)
    for name, parameter in trained.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.1)
    trained.save_pretrained("adapter")
    sampled = ModelCopy(trained.eval(), torch.bfloat16).model
    evaluated = load_model(ModelSettings(path="adapter", dtype="bfloat16"), EVALUATION).model
    assert {p.dtype for p in evaluated.parameters()} == {torch.bfloat16}
    assert torch.equal(logits_of(evaluated), logits_of(sampled))


def test_only_the_named_layers_get_an_adapter(workplace):
    lora = {"r": 4, "target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1]}
    model = trained_adapter(workplace / "upper", lora=lora)
    trained = {name for name, weights in model.named_parameters() if weights.requires_grad}
    assert len(trained) == 4 and all(".layers.1." in name for name in trained)
    again = load_model(ModelSettings(path="upper", dtype="float32"), EVALUATION).model
    torch.testing.assert_close(logits_of(again), logits_of(model))


def test_training_goes_on_from_an_adapter(adapter):
    section = ModelSettings(path="adapter", dtype="float32")
    use = Use(training=True, device="cpu", trust=True)
    model = load_model(section, use).model
    assert any(parameter.requires_grad for parameter in model.parameters())
    torch.testing.assert_close(logits_of(model.eval()), logits_of(exact(adapter)))
    with pytest.raises(ConfigError, match="is an adapter, which has settings of its own"):
        load_model(section.model_copy(update={"lora": ModelSettings(lora={"r": 2}).lora}), use)


def test_commands_take_an_adapter_whose_base_is_allowed(adapter, invoke):
    where = ("--env", "digit.DigitEnv", "--rollouts", "4", "--json")
    refused = invoke("eval", "adapter", *where)
    assert refused.exit_code == 2 and refused.stdout == ""
    assert "belongs to the model" in refused.stderr
    assert str(Path("model").resolve()) in refused.stderr and "--trust" in refused.stderr
    played = invoke("eval", "adapter", *where, "--trust", "model.dtype=float32")
    assert played.exit_code == 0, played.output
    watched = invoke("play", "digit.DigitEnv", "--agent", "adapter", "--trust")
    assert watched.exit_code == 0, watched.output
    assert invoke("merge", "adapter").exit_code == 2
    merged = invoke("merge", "adapter", "--trust", "--output", "out")
    assert merged.exit_code == 0 and "merged model is in out" in merged.stdout
    again = invoke("merge", "adapter", "--trust", "--output", "out")
    assert again.exit_code == 2 and "out already exists" in again.stderr


def test_a_base_inside_the_adapter_or_in_the_package_needs_no_permission(workplace):
    trained_adapter(workplace / "adapter")
    shutil.copytree("model", "adapter/base")
    edited(Path("adapter"), base_model_name_or_path=str(workplace / "adapter" / "base"))
    use = Use(training=False, device="cpu")
    assert load_model(ModelSettings(path="adapter"), use).model.peft_config
    trained_adapter(workplace / "second", base="builtin:quickstart")
    assert read_adapter(Path("second")).base == "builtin:quickstart"
    assert load_model(ModelSettings(path="second"), use).model.peft_config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_model_name_or_path": None}, "base_model_name_or_path is missing"),
        ({"base_model_name_or_path": "../../etc"}, "hf download"),
        ({"base_model_name_or_path": "/nowhere/at/all"}, "which does not exist"),
        ({"peft_type": "PREFIX_TUNING"}, "peft_type must be 'LORA', got 'PREFIX_TUNING'"),
        ({"megatron_config": {"a": 1}}, "it uses 'megatron_config' of PEFT"),
        ({"target_modules": "(a+)+b"}, "target_modules must be"),
        ({"rank_pattern": {"(a+)+b": 2}}, "rank_pattern.(a+)+b must match"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights must be"),
        ({"r": 10**9}, "r must be less than or equal to 4096"),
        ({"r": 8}, "does not fit the model"),
        (None, "pickled ones are not read"),
    ],
)
def test_a_bad_adapter_directory_is_refused(adapter, changes, message):
    if changes is None:
        (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    edited(adapter, **(changes or {}))
    with pytest.raises(ConfigError) as caught:
        load_model(ModelSettings(path="adapter"), EVALUATION)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_merge_says_what_it_cannot_merge(workplace):
    with pytest.raises(ConfigError, match="model is neither a run that has trained"):
        merge_adapter(Path("model"))
    Path("run").mkdir()
    Path("run/config.yaml").write_text("env: Bandit\n")
    with pytest.raises(ConfigError, match="run is neither a run that has trained"):
        merge_adapter(Path("run"))
    shutil.copytree("model", "run/model")
    with pytest.raises(ConfigError, match="run/model has whole weights"):
        merge_adapter(Path("run"))


def test_no_merged_weights_stay_behind_when_servers_do_not_start(adapter, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(Path.cwd() / "temporary"))
    Path("temporary").mkdir()
    written = []

    def fail(settings, parts, *, training):
        folder = Path(served_model(parts.served(), parts.directory()).folder)
        written.extend(folder.glob("*.safetensors"))
        (folder.parent / "server-0.log").write_text("no room for the KV cache")
        raise LaunchFailed("not ready")

    monkeypatch.setattr(players, "make_engine", fail)
    section = {"path": str(adapter), "dtype": "float32"}
    run = with_trust(parse_config({"env": "Bandit", "model": section}))
    run.engine.launch = 1
    with pytest.raises(LaunchFailed), players.contestant("adapter", run, seed=0, note=print):
        pass
    assert written and [path.name for path in Path("temporary").rglob("*.*")] == ["server-0.log"]
