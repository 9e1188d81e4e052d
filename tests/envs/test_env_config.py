"""Every key of every shipped environment: odd values are refused with the key's name."""

import math

import pytest

import agentsgym
from agentsgym.envs import ConfigError, find
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.config import Key
from agentsgym.envs.extras import MissingExtra

ODD = [math.nan, math.inf, -math.inf, -1, "x", None, [], {}, True, 10**400, [[]], {"x": math.nan}]


@pytest.mark.parametrize("name", BUILTIN)
def test_odd_values_are_accepted_as_what_they_are_or_refused_by_name(name):
    try:
        agentsgym.make(name)
    except MissingExtra as error:
        pytest.skip(str(error))
    keys = find(name).all_config_keys()
    for key, spec in keys.items():
        for value in ODD:
            try:
                env = agentsgym.make(name, None, {key: value})
            except ConfigError as error:
                assert key in str(error) and name in str(error), (key, value)
                continue
            assert spec.problem(value) is None and env.config[key] == value, (key, value)
            number = isinstance(value, float | int) and not isinstance(value, bool)
            assert not number or -10 < value < 10, (key, value)


def test_no_number_is_nan_or_infinite():
    for value in (math.nan, math.inf, -math.inf, 10**400):
        assert Key(float, 0.5).problem(value).startswith("must be a finite number, got ")
    assert Key((int, float), 1).problem(-3) is None


def test_a_value_of_any_size_is_shown_short():
    deep = []
    for _ in range(20_000):
        deep = [deep]
    for value in (deep, "x" * 100_000, list(range(10_000))):
        assert len(Key(int, 1).problem(value)) < 600
