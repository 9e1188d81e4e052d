"""`agentsgym train … --estimate`: memory and tokens of a run that nobody starts."""

import dataclasses
import json

import pytest

from agentsgym.cli.estimate import size
from agentsgym.envs import ConfigError
from agentsgym.runs import load_config, parse_config, presets
from agentsgym.runs.architecture import KNOWN, architecture_of, of_file
from agentsgym.runs.estimate import estimate
from agentsgym.runs.memory import Workload, block_bytes, memory_of

# Parameters in billions as the model cards give them.
CARDS = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": 0.1345,
    "HuggingFaceTB/SmolLM2-360M-Instruct": 0.362,
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": 1.71,
    "Qwen/Qwen3-0.6B": 0.596,
    "Qwen/Qwen3-1.7B": 1.72,
    "Qwen/Qwen3-4B": 4.02,
    "Qwen/Qwen3-8B": 8.19,
    "meta-llama/Llama-3.2-1B-Instruct": 1.236,
    "meta-llama/Llama-3.2-3B-Instruct": 3.213,
}
QWEN = KNOWN["Qwen/Qwen3-8B"]
LOAD = Workload(
    model=QWEN,
    trained=QWEN.parameters,
    adapter=0,
    base_bytes=4,
    half=True,
    moments=2,
    differentiated=QWEN.layers,
    reference=False,
    checkpointing=False,
    forward_tokens=4096,
    row_tokens=1024,
    agent_tokens=1024,
    several=True,
    rows=0,
    cache_tokens=0,
    products=0,
)


def run(**data):
    return parse_config(
        {"env": "Bandit", "model": "Qwen/Qwen3-1.7B", "train": {"max_steps": 1}, **data}
    )


def test_the_table_has_the_parameters_of_the_model_cards():
    assert set(CARDS) == set(KNOWN)
    for name, billions in CARDS.items():
        assert KNOWN[name].parameters / 1e9 == pytest.approx(billions, rel=2e-3), name


def test_a_config_file_gives_the_parameters_of_the_real_model(tiny_llama, tmp_path):
    tiny_llama.save_pretrained(tmp_path)
    found = of_file(tmp_path / "config.json")
    assert found.parameters == sum(p.numel() for p in tiny_llama.parameters())


def test_a_real_qwen3_has_the_parameters_of_the_formula():
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    small = dataclasses.replace(QWEN, layers=2, width=64, heads=4, kv_heads=2, head_dim=32, mlp=96)
    config = Qwen3Config(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=96, vocab_size=small.vocabulary, tie_word_embeddings=False,
    )  # fmt: skip
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config)
    assert small.parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "lacks 'num_attention_heads'"),
        ("[", "no memory can be estimated from"),
        ('{"num_experts": 8}', "mixture of experts"),
    ],
)
def test_a_config_file_that_says_too_little_is_one_sentence(content, message, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        of_file(path)


def test_an_unknown_model_is_one_sentence():
    with pytest.raises(
        ConfigError, match=r"architecture of 'no/model' is not known.*Qwen/Qwen3-8B"
    ):
        architecture_of(run(model="no/model"))


def test_adam_on_whole_weights_takes_sixteen_bytes_a_weight():
    memory = memory_of(LOAD)
    held = memory.weights + memory.optimizer + memory.gradients
    assert held == 16 * QWEN.parameters
    assert memory.peak == memory.updating > memory.playing


def test_zero2_divides_optimizer_and_gradients_and_ddp_keeps_buckets():
    one, ddp = memory_of(LOAD), memory_of(LOAD, "DDP", 8)
    zero = memory_of(LOAD, "ZeRO-2", 8)
    assert ddp.gradients == 2 * one.gradients and ddp.optimizer == one.optimizer
    assert zero.weights == 2 * QWEN.parameters
    assert zero.optimizer == pytest.approx(12 * QWEN.parameters / 8)
    assert zero.gradients == pytest.approx(2 * QWEN.parameters / 8)


def test_checkpointing_keeps_one_block_and_a_vector_per_layer():
    kept = memory_of(dataclasses.replace(LOAD, checkpointing=True))
    assert kept.activations < memory_of(LOAD).activations / 2
    block = block_bytes(QWEN, half=True)
    assert kept.activations > LOAD.forward_tokens * block


def test_an_adapter_on_a_frozen_base_needs_no_moments_of_it():
    config = run(model={"path": "Qwen/Qwen3-8B", "dtype": "bfloat16", "lora": {"r": 16}})
    found = estimate(config)
    memory = found.memory["one process"]
    # PEFT says 43,646,976 for this rank on all linear layers of Qwen3-8B.
    assert found.workload.adapter == 43_646_976
    assert memory.weights == 2 * QWEN.parameters + 4 * 43_646_976
    assert memory.optimizer == 8 * 43_646_976


def test_the_settings_decide_the_tokens_of_a_step():
    train = {
        "max_steps": 1, "per_device_train_batch_size": 8, "num_generations": 4,
        "gradient_accumulation_steps": 2, "max_action_tokens": 10, "max_rollout_tokens": 300,
    }  # fmt: skip
    tokens = estimate(run(env_config={"max_steps_per_episode": 5}, train=train)).tokens
    assert (tokens.rollouts, tokens.turns, tokens.agent, tokens.read) == (16, 5, 800, 4800)
    assert tokens.known


def test_servers_take_cache_and_copy_out_of_the_process():
    own = estimate(run(model={"path": "Qwen/Qwen3-1.7B", "dtype": "bfloat16"}))
    served = estimate(
        run(model={"path": "Qwen/Qwen3-1.7B", "dtype": "bfloat16"}, engine={"urls": ["http://a:1"]})
    )
    assert own.memory["one process"].copies == 2 * own.model.parameters
    memory = served.memory["one process"]
    assert memory.cache == memory.copies == memory.sampling == 0
    assert any("engine's own memory is not counted" in note for note in served.notes)


@pytest.mark.parametrize(("dtype", "size"), [("bfloat16", 2), ("float32", 4)])
def test_an_engine_in_a_process_of_its_own_has_its_own_weights_and_works_beside(dtype, size):
    """On a CPU there is one more copy, in memory that both processes share."""
    options = {"model": {"path": "Qwen/Qwen3-1.7B", "dtype": dtype}}
    options |= {"train": {"max_steps": 1, "use_cpu": True}}
    own, apart = (estimate(run(**options, engine=engine)) for engine in ({}, {"name": "process"}))
    memory, plain = apart.memory["one process"], own.memory["one process"]
    assert memory.copies == 2 * size * apart.model.parameters
    parts = ("weights", "optimizer", "cache", "sampling", "activations", "kernels")
    assert [getattr(memory, part) for part in parts] == [getattr(plain, part) for part in parts]
    assert memory.cache > 0 and memory.sampling > 0
    assert memory.peak == memory.playing + memory.updating - memory.always
    assert any("own process" in note for note in apart.notes)


def test_a_quantized_base_is_sent_to_another_process_as_it_is():
    lora = {"trained": 1000, "adapter": 1000, "base_bytes": 0.5, "sent": 1}
    memory = memory_of(dataclasses.replace(LOAD, **lora))
    assert memory.copies == 2000 + QWEN.parameters // 2


@pytest.mark.parametrize(
    ("dtype", "engine", "counted"),
    [
        ("bfloat16", {}, True),
        ("bfloat16", {"name": "process"}, True),
        ("float32", {}, False),
        ("bfloat16", {"urls": ["http://a:1"]}, False),
    ],
)
def test_products_that_a_cpu_compiles_for_16_bits_are_always_there(dtype, engine, counted):
    train = {"max_steps": 1, "use_cpu": True}
    model = {"path": "Qwen/Qwen3-1.7B", "dtype": dtype}
    memory = estimate(run(model=model, engine=engine, train=train)).memory["one process"]
    assert memory.kernels == pytest.approx(1.2e9 if counted else 0, rel=0.05)
    held = memory.weights + memory.copies + memory.optimizer + memory.kernels
    assert memory.always == held <= min(memory.playing, memory.updating)


def test_the_command_prints_the_estimate_and_writes_nothing(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = invoke("train", "quickstart", "--estimate", "model=Qwen/Qwen3-8B", "--processes", "8")
    assert shown.exit_code == 0, shown.output
    for words in ("8.19 B parameters", "each of 8, ZeRO-2", "optimizer state", "Most of it is"):
        assert words in shown.stdout
    assert not list(tmp_path.iterdir())


def test_the_estimate_reads_the_config_of_a_directory(invoke, tiny_llama, tmp_path):
    tiny_llama.save_pretrained(tmp_path)
    width = json.loads((tmp_path / "config.json").read_text())["hidden_size"]
    found = architecture_of(run(model=str(tmp_path)))
    assert found.width == width


@pytest.mark.parametrize(
    ("name", "layout", "processes"), [("one-gpu", "one process", 1), ("eight-gpus", "ZeRO-2", 6)]
)
def test_a_preset_costs_what_the_estimate_says(name, layout, processes):
    config = load_config(name)
    peak = estimate(config, processes).memory[layout].peak
    assert config.costs.startswith(f"{size(peak)} "), size(peak)
    assert "never run on a GPU" in config.run_on


def test_the_list_of_presets_says_what_each_needs_and_costs(invoke):
    shown = " ".join(invoke("presets").stdout.split())
    for name in presets():
        config = load_config(name)
        for text in (name, config.description, config.needs, config.costs, config.run_on):
            assert " ".join(text.split()) in shown, text
