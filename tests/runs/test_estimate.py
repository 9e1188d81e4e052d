"""`agentsgym train … --estimate`: memory and tokens of a run that nobody starts."""

import json

import pytest
from transformers import Qwen3Config

from agentsgym.envs import ConfigError
from agentsgym.runs import parse_config
from agentsgym.runs.rehearsal import estimate_run
from agentsgym.warm_start.settings import WarmStartSettings

QWEN = {"head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151936}
SMALL = Qwen3Config(
    num_hidden_layers=28, hidden_size=2048, num_attention_heads=16, intermediate_size=6144,
    tie_word_embeddings=True, **QWEN,
)  # fmt: skip
N = 1_720_574_976
"""Parameters of Qwen3-1.7B."""


@pytest.fixture
def path(tmp_path) -> str:
    """A directory with the config.json of Qwen3-1.7B."""
    SMALL.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def run(path, model=(), **data):
    section = {"path": path, **dict(model)}
    train = {"max_steps": 1, "use_cpu": True} | data.pop("train", {})
    return parse_config({"env": "Bandit", "model": section, "train": train, **data})


def one(config, **options):
    return estimate_run(config, **options).memory


def test_adam_on_whole_weights_takes_sixteen_bytes_a_weight(path):
    result = estimate_run(run(path, {"dtype": "float32"}))
    memory = result.memory
    assert result.parameters == result.trained == N
    assert memory["weights"] + memory["optimizer"] + memory["gradients"] == 16 * N
    assert memory["copies"] == 0
    held = 12 * N + max(memory["gradients"] + memory["activations"], memory["cache"])
    assert memory["peak"] == held


def test_checkpointing_keeps_a_vector_per_layer_and_one_layer(path):
    every, kept = (
        one(run(path, train={"gradient_checkpointing": on}))["activations"] for on in (False, True)
    )
    assert every / 28 < kept < every / 2


def test_an_adapter_on_a_frozen_base_needs_no_moments_of_it(path):
    result = estimate_run(run(path, {"dtype": "bfloat16", "lora": {"r": 16}}))
    memory = result.memory
    linear = [(2048, 2048), (2048, 1024), (2048, 1024), (2048, 2048)] + 3 * [(2048, 6144)]
    assert result.trained == 28 * 16 * sum(a + b for a, b in linear)
    assert memory["weights"] == 2 * N + 4 * result.trained
    assert memory["optimizer"] == 8 * result.trained
    some = {"r": 16, "target_modules": ["q_proj"], "layers_to_transform": [3, 4]}
    assert estimate_run(run(path, {"lora": some})).trained == 2 * 16 * (2048 + 2048)


def test_the_reference_of_kl_and_the_copy_that_is_sampled_are_counted(path):
    assert one(run(path, {"dtype": "float32"}, train={"beta": 0.1}))["copies"] == 4 * N
    assert one(run(path, {"dtype": "bfloat16"}))["copies"] == 2 * N
    memory = one(run(path, {"dtype": "bfloat16"}, engine={"urls": ["http://a:1"]}))
    assert memory["copies"] == memory["cache"] == 0


@pytest.mark.parametrize(
    ("distributed", "divided"),
    [
        ("ddp", ()),
        ("zero2", ("optimizer", "gradients")),
        ("fsdp2", ("weights", "optimizer", "gradients")),
    ],
)
def test_processes_divide_what_they_share(path, distributed, divided):
    config = run(path, engine={"urls": ["http://a:1"]}, distributed=distributed)
    alone, shared = estimate_run(config), estimate_run(config, processes=4)
    for what in ("weights", "optimizer", "gradients", "activations"):
        assert shared.memory[what] == alone.memory[what] // (4 if what in divided else 1)
    assert shared.rollouts == 4 * alone.rollouts


def test_the_warm_start_of_a_pretrained_model_has_larger_chunks(path):
    plain = run(path, train={"max_rollout_tokens": 512, "max_tokens_per_forward": 1024})
    warm = plain.model_copy(update={"warm_start": WarmStartSettings(source="teacher")})
    assert one(warm)["activations"] == 4 * one(plain)["activations"]


def test_the_settings_decide_the_tokens_of_a_step(path):
    train = {
        "per_device_train_batch_size": 8, "num_generations": 4, "gradient_accumulation_steps": 2,
        "max_action_tokens": 10, "max_rollout_tokens": 300,
    }  # fmt: skip
    result = estimate_run(run(path, train=train))
    assert (result.rollouts, result.tokens, result.guessed) == (16, 300, False)
    train["max_rollout_tokens"] = None
    result = estimate_run(run(path, env_config={"max_steps_per_episode": 5}, train=train))
    assert (result.tokens, result.guessed) == (256 + 5 * (10 + 32), True)


@pytest.mark.parametrize("content", ["{}", "[", '{"model_type": "no such type"}', None, 10_000_000])
def test_a_model_without_a_usable_config_file_is_one_sentence(content, tmp_path):
    if isinstance(content, int):
        content = json.dumps(SMALL.to_dict() | {"num_hidden_layers": content})
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        estimate_run(run(str(tmp_path)))


def test_the_command_prints_the_estimate_and_writes_nothing(invoke, path, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    options = ("--estimate", f"model={path}")
    shown = invoke("train", "quickstart", *options)
    assert shown.exit_code == 0, shown.output
    for words in ("1.72 B parameters", "optimizer", "peak"):
        assert words in shown.stdout
    assert not list((tmp_path / "here").iterdir())
