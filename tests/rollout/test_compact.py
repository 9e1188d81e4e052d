"""A rollout as bytes and back: every field is equal, numbers bit by bit."""

import dataclasses
import math
import pickle
import struct

import numpy as np
import pytest

from agentsgym import DirectOutputAgent, SamplingParams
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import compact
from agentsgym.types import Episode, Rollout, Row, Step, StepSpan
from moody import MoodyEnv


def back(rollout):
    return compact.from_bytes(
        compact.to_bytes(rollout), env_config=rollout.env_config, task_data=rollout.task_data
    )


def exact(value):
    """The value with its types, with floats as bits."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return type(value), [(name, exact(getattr(value, name))) for name in names]
    if isinstance(value, dict):
        return [(key, exact(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [exact(item) for item in value]
    return type(value), struct.pack("d", value) if isinstance(value, float) else value


def a_rollout(**values):
    """A rollout in which no field has its default."""
    length = values.pop("length", 6)
    step = Step(
        index=3,
        observation="now 🎲?\n",
        action="go",
        reward=0.1,
        done=True,
        info={"win": True, "metrics": {"a": math.nan}, "deep": [1, 2.5, None, {"b": "go"}]},
        malformed=True,
        truncated=True,
        kind="reflection",
        anchor="now",
        token_rewards=(0.25, -0.0, 1 / 3),
        penalty=0.5,
    )
    messages = ({"role": "user", "content": "now"}, {"role": "assistant", "content": "go"})
    episode = Episode(1, (step, dataclasses.replace(step, token_rewards=None)), messages, -1e300,
                      0.0, "ended")  # fmt: skip
    row = Row(
        session_id="s",
        group=4,
        rollout=2,
        token_ids=tuple(range(length)),
        agent_token_mask=(0, 1) * (length // 2),
        logprobs=(-0.0, -1 / 3) * (length // 2),
        per_token_rewards=(0.0, 0.1) * (length // 2),
        spans=(StepSpan(1, 3, 1, 2), StepSpan(1, 4, 3, 4)),
        begins="template",
        sampled=False,
        rewrites="answer",
    )
    given = {
        "session_id": "s",
        "group": 4,
        "index": 2,
        "env_class_path": "my.Env",
        "env_config": {"a": 1},
        "task_data": {"b": [1, 2]},
        "episodes": (episode, dataclasses.replace(episode, steps=(), messages=())),
        "rows": (row, dataclasses.replace(row, spans=())),
        "error": "it broke",
        "seed": 2**63 - 1,
        "policy_version": 7,
        "repeats_reward": True,
    }
    return Rollout(**(given | values))


def test_every_field_comes_back_with_its_type():
    rollout = a_rollout()
    for kind, record in ((Rollout, rollout), (Row, rollout.rows[0]),
                         (Step, rollout.episodes[0].steps[0])):  # fmt: skip
        for field in dataclasses.fields(kind):
            if field.default is not dataclasses.MISSING:
                assert getattr(record, field.name) != field.default, f"{field.name} is not tested"
    assert exact(back(rollout)) == exact(rollout)


def test_a_rollout_without_anything_comes_back():
    rollout = a_rollout(episodes=(), rows=(), error=None)
    assert exact(back(rollout)) == exact(rollout)
    rollout = a_rollout(length=0)
    assert exact(back(rollout)) == exact(rollout)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ((0, 255), "uint8"),
        ((0, 256), "uint16"),
        ((0, 65536), "uint32"),
        ((0, 2**32), "int64"),
        ((-1, 2**62), "int64"),
        ((), "uint8"),
    ],
)
def test_whole_numbers_take_the_narrowest_type(values, dtype):
    packed = compact._ints(values)
    assert np.dtype(packed[:1].decode()) == np.dtype(dtype)
    assert exact(compact._numbers(packed)) == exact(values)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ((0.5, float(np.float32(-1.1)), -0.0), "float32"),
        ((math.inf, -math.inf), "float32"),
        ((0.1,), "float64"),
        ((1e300, 0.0), "float64"),
        ((5e-324,), "float64"),
        ((1e-50, math.nan), "float64"),
    ],
)
def test_floats_are_exact(values, dtype):
    packed = compact._floats(values)
    assert np.dtype(packed[:1].decode()) == np.dtype(dtype)
    assert exact(compact._numbers(packed)) == exact(values)


def test_played_rollouts_come_back_and_are_small(tiny_llama, chat_tokenizer):
    agent = DirectOutputAgent(
        EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=8), SamplingParams(max_tokens=8)
    )
    env = MoodyEnv(chat_tokenizer, {"episodes_per_trial": 3, "free_shots": 1, "carry": "full"})
    batch = env.run_trial([{"length": k} for k in (4, 6)], agent, 4, seed=1)
    assert [exact(back(r)) for r in batch.rollouts] == [exact(r) for r in batch.rollouts]
    pickled = sum(len(pickle.dumps(r, 5)) for r in batch.rollouts)
    assert sum(len(compact.to_bytes(r)) for r in batch.rollouts) < pickled / 5
