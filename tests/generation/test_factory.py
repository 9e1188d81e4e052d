"""The table of engines: what the settings choose, and that each entry keeps what it says."""

import importlib
import re
from pathlib import Path

import pytest
from generation_helpers import build_model
from typing_extensions import get_protocol_members

from agentsgym.generation import UnsupportedModelError
from agentsgym.generation.factory import (
    ENGINES,
    choose,
    make_engine,
    make_trainable,
)
from agentsgym.generation.plain import PlainEngine
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.types import Engine, TrainableEngine
from chat_server import ChatServer

DOCS = Path(__file__).parents[2] / "docs" / "engines.md"
URLS = ["http://a"]


def class_of(entry):
    module, _, name = entry.path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("entry", ENGINES.values(), ids=list(ENGINES))
def test_each_class_has_what_its_entry_promises(entry):
    kind = class_of(entry)
    protocol = TrainableEngine if entry.training else Engine
    set_by_constructor = {"tokenizer", "capacity", "policy_version"}
    missing = [name for name in get_protocol_members(protocol) if not hasattr(kind, name)]
    assert set(missing) <= set_by_constructor
    assert callable(kind.from_settings) and callable(kind.close)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "embedded"),
        ({"urls": URLS}, "vllm"),
        ({"launch": 1}, "vllm"),
        ({"name": "plain"}, "plain"),
        ({"name": "vllm", "urls": URLS}, "vllm"),
    ],
)
def test_what_the_settings_choose(settings, name):
    assert choose(EngineSettings(**settings), training=True).name == name


@pytest.mark.parametrize(
    ("settings", "training", "words"),
    [
        ({"name": "vllm"}, True, "needs engine.urls or engine.launch"),
        ({"name": "vllm"}, False, "needs engine.urls"),
        ({"name": "plain", "urls": URLS}, True, "does not use engine.urls"),
        ({"name": "plain", "launch": 1}, True, "does not use engine.launch"),
        ({"name": "plain", "cache_gib": 1.0}, True, "does not use engine.cache_gib"),
        ({"urls": URLS, "launch": 1}, True, "leave one of them out"),
        ({"name": "chat"}, True, "cannot be trained"),
        ({"name": "chat", "urls": URLS}, False, "needs engine.served_model"),
        ({"launch_args": ["a"]}, True, "engine.launch_args belongs to engine.launch"),
        ({"name": "vlm"}, True, "engine.name must be one of embedded"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, training, words):
    with pytest.raises(ValueError, match=words):
        choose(EngineSettings(**settings), training=training)


def test_an_engine_that_needs_no_weights_loads_none(model, tokenizer):
    server = ChatServer()
    engine = make_engine(
        EngineSettings(name="chat", urls=[server.url], served_model="m", capacity=3),
        EngineParts(),
        training=False,
    )
    assert (engine.tokenizer, engine.capacity, engine.model) == (None, 3, "m")
    engine.close()
    server.close()


def test_a_refused_model_is_sampled_by_the_plain_engine_unless_a_name_forbids(tokenizer, caplog):
    refused = build_model(attn_implementation="eager")
    refused.config.alibi = True
    parts = EngineParts(model=lambda: refused, tokenizer=lambda: tokenizer)
    assert isinstance(make_trainable(EngineSettings(capacity=3), parts), PlainEngine)
    (line,) = caplog.messages
    assert line.startswith("the embedded engine does not support LlamaForCausalLM: it uses ALiBi")
    assert "the plain engine samples instead" in line and "\n" not in line
    with pytest.raises(UnsupportedModelError, match=r"ALiBi.*plain"):
        make_trainable(EngineSettings(name="embedded"), parts)
    caplog.clear()
    assert isinstance(make_trainable(EngineSettings(name="plain"), parts), PlainEngine)
    assert caplog.messages == []


def test_the_documentation_names_every_engine():
    table = re.findall(r"(?m)^\| `(\w+)` \|.*\| (yes|no) \|$", DOCS.read_text("utf-8"))
    kinds = [(e.name, e.training) for e in ENGINES.values()]
    assert [(name, training == "yes") for name, training in table] == kinds


@pytest.mark.parametrize("name", ["embedded", "plain"])
def test_a_sharded_model_is_refused_with_the_ways_that_there_are(name):
    parts = EngineParts(sharded=True)
    with pytest.raises(ValueError, match=r"FSDP2 .*engine\.urls.*DDP or ZeRO-2"):
        make_trainable(EngineSettings(name=name), parts)
