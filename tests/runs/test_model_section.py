"""The section `model` of a run file: its short form, its overrides, what is stored of it."""

from pathlib import Path

import pytest

from agentsgym.envs import ConfigError
from agentsgym.runs import ModelSettings, load_config, merge, parse_config
from agentsgym.runs.from_config import template_remark, train_settings

LORA = {"model": {"path": "base", "revision": "v1", "lora": {"r": 4}}}


def of(model):
    return parse_config({"env": "Bandit", "model": model}).model


def test_a_string_is_the_path():
    assert of("some/model") == of({"path": "some/model"}) == ModelSettings(path="some/model")
    assert parse_config({"env": "Bandit"}).model.path == "tiny"


def test_a_key_of_the_section_is_set_where_a_preset_names_only_the_path():
    config = load_config("quickstart", {"model.lora.r": 8, "model.dtype": "bfloat16"})
    assert config.model.path == "builtin:quickstart"
    assert config.model.lora.r == 8 and config.model.lora.target_modules == "all-linear"
    assert config.model.dtype == "bfloat16"


def test_another_path_keeps_the_settings_but_the_revision_of_the_former_one():
    changed = parse_config(merge({"env": "Bandit", **LORA}, {"model": "other"})).model
    assert (changed.path, changed.revision, changed.lora.r) == ("other", None, 4)
    both = merge({"env": "Bandit", **LORA}, {"model": "other", "model.revision": "v2"})
    assert parse_config(both).model.revision == "v2"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"pth": "x"}, "unknown key 'model.pth'; did you mean 'model.path'"),
        ({"path": "x", "lora": {"rank": 8}}, "unknown key 'model.lora.rank'"),
        ({"path": "x", "lora": {"target_modules": ".*"}}, "target_modules must be"),
        ({"path": "x", "lora": {"layers_to_transform": [1]}}, "needs target_modules as a list"),
        ({"path": "x", "attn_implementation": "a/kernel"}, "attn_implementation must be"),
        ({"path": "x", "chat_template": "{{ x }}"}, "own, training or the path of a .jinja file"),
        ({"path": "x", "trust_remote_code": True}, "unknown key 'model.trust_remote_code'"),
    ],
)
def test_the_wrong_key_or_value_is_named(model, message):
    with pytest.raises(ConfigError) as caught:
        of(model)
    assert message in str(caught.value)


def loaded(**model):
    from agentsgym.runs.models import Use, load_model

    use = Use(training=True, device="cpu")
    return load_model(ModelSettings(**{"path": "model", "dtype": "float32", **model}), use)


def test_a_template_file_is_the_tokenizers_template(workplace):
    Path("mine.jinja").write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    tokenizer = loaded(chat_template="mine.jinja").tokenizer
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "<hi>"
    with pytest.raises(ConfigError, match=r"model.chat_template: none.jinja"):
        loaded(chat_template="none.jinja")
    assert of({"path": "m", "chat_template": "mine.jinja"}).at("run/model").chat_template == "own"


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"chat_template": "training"},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
def test_the_trainer_gets_the_sections_template(model):
    data = {"env": "Bandit", "model": {"path": "m", **model}, "train": {"max_steps": 1}}
    settings = train_settings(parse_config(data))
    assert settings.chat_template == model.get("chat_template", "own")
    assert (settings.chat_template_kwargs or {}) == model.get("chat_template_kwargs", {})


def test_what_a_user_is_told_of_a_template(workplace, chat_tokenizer, plain_tokenizer,
                                           thinking_tokenizer):  # fmt: skip
    config = parse_config({"env": "Bandit", "model": "model"})
    assert template_remark(config.model, chat_tokenizer) is None
    assert "no chat template" in template_remark(config.model, plain_tokenizer)
    assert "drops earlier thoughts" in template_remark(config.model, thinking_tokenizer)
    parsed = parse_config({"env": "Bandit", "model": {"path": "m", "chat_template": "training"}})
    with pytest.raises(ConfigError, match="has no chat template"):
        template_remark(parsed.model, plain_tokenizer)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"model": "nowhere"}, "there is no such directory, and from the hub: "),
        ({"model.dtype": "float16"}, "model.dtype float16 needs a GPU"),
        ({"model.quantization": "4bit"}, "model.quantization=4bit needs a GPU"),
        ({"model.attn_implementation": "flash_attention_2"}, "flash_attention_2 needs a GPU"),
        ({"model.attn_implementation": "flash_x"}, "attn_implementation must be"),
        ({"model.revision": "v2"}, "is a branch or commit on the hub, but model.path"),
        ({"model.lora": {"target_modules": ["none"]}}, "Target modules {'none'} not found"),
        ({"train.trust_remote_code": True}, "a run never executes a model's own code"),
        ({"model": "tiny", "model.lora": {}}, "'tiny' is trained as a whole"),
    ],
)
def test_bad_input_is_one_sentence(workplace, invoke, setting, message):
    import json

    words = [f"{key}={json.dumps(value)}" for key, value in setting.items()]
    result = invoke("train", "toy.yaml", *words)
    text = " ".join(result.stderr.split())
    assert result.exit_code == 2 and message in text and text.startswith("error: "), text
    assert "Traceback" not in text and text.count("error:") == 1


def test_quantized_weights_cannot_be_trained(workplace, monkeypatch):
    """Without a GPU quantization is refused before; the sentence is for machines with one."""
    monkeypatch.setattr("agentsgym.runs.models.check_machine", lambda *_: None)
    with pytest.raises(ConfigError, match="quantized weights cannot be trained; train an adapter"):
        loaded(quantization="8bit")
