"""`model.dtype` decides whether a run trains with mixed precision."""

import pytest

from agentsgym.runs.from_config import train_settings
from agentsgym.runs.settings import parse_config

torch = pytest.importorskip("torch")


def settings(model, **train):
    given = {"env": "TwentyQuestions", "model": model, "train": {"max_steps": 1, **train}}
    made = train_settings(parse_config(given))
    return made.bf16, made.fp16


@pytest.fixture(params=[True, False])
def native(request, monkeypatch):
    """Whether the device has bfloat16."""
    from agentsgym.generation.embedded import precision

    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda kind: request.param)
    return request.param


def test_auto_trains_in_bfloat16_where_the_device_has_it(native):
    assert settings("some/model") == settings("builtin:smollm2") == (native, False)


@pytest.mark.parametrize("path", ["tiny", "builtin:quickstart"])
def test_our_own_small_models_train_in_float32(native, path):
    assert settings(path) == (False, False)


def test_a_named_dtype_decides(native):
    assert settings({"path": "tiny", "dtype": "bfloat16"}) == (True, False)
    assert settings({"path": "some/model", "dtype": "float32"}) == (False, False)
