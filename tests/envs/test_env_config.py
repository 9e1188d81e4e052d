"""The settings of environments: odd values are refused with the environment and the key."""

import math

import pytest

import agentsgym
from agentsgym.envs import ConfigError, EnvSettings, MultistepEnv, find
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.extras import MissingExtra

ODD = [math.nan, math.inf, -math.inf, -1, "x", None, [], {}, True, 10**400, [[]], {"x": math.nan}]


class Loud(MultistepEnv):
    class Settings(EnvSettings):
        carry: str = "full"
        max_steps_per_episode: int = 4
        volume: int = 3


@pytest.mark.parametrize("name", BUILTIN)
def test_odd_values_are_accepted_as_what_they_are_or_refused_by_name(name):
    try:
        agentsgym.make(name)
    except MissingExtra as error:
        pytest.skip(str(error))
    for key in find(name).Settings.model_fields:
        for value in ODD:
            try:
                env = agentsgym.make(name, None, {key: value})
            except ConfigError as error:
                assert key in str(error) and name in str(error), (key, value)
                continue
            assert getattr(env.config, key) == value, (key, value)
            number = isinstance(value, float | int) and not isinstance(value, bool)
            assert not number or -10 < value < 10, (key, value)


def test_a_common_setting_declared_again_keeps_its_type_and_range():
    assert Loud().config.carry == "full" and Loud().config.max_steps_per_episode == 4
    for config, allowed in (
        ({"carry": "ful"}, "'none', 'full' or 'summary'"),
        ({"max_steps_per_episode": 0}, "1"),
        ({"max_steps_per_episode": True}, "integer"),
        ({"free_shots": 1}, "less than episodes_per_trial"),
        ({"free_shots": -1}, "0"),
        ({"system_prompt": 3}, "string"),
    ):
        key, value = next(iter(config.items()))
        with pytest.raises(ConfigError) as error:
            Loud(None, config)
        for part in ("Loud", key, repr(value), allowed):
            assert part in str(error.value)
    meaning = Loud.Settings.model_fields["max_steps_per_episode"].description
    assert meaning == EnvSettings.model_fields["max_steps_per_episode"].description


def test_an_unknown_key_is_refused_with_what_was_meant():
    with pytest.raises(ConfigError, match=r"Loud: .*'env_config.volum'.*'env_config.volume'"):
        Loud(None, {"volum": 1})


def test_a_value_of_any_size_is_shown_short():
    deep: list = []
    for _ in range(20_000):
        deep = [deep]
    for value in (deep, "x" * 100_000, list(range(10_000))):
        with pytest.raises(ConfigError) as error:
            Loud(None, {"volume": value})
        assert len(str(error.value)) < 600


def test_settings_that_lack_those_of_the_base_are_refused():
    class Base(MultistepEnv):
        class Settings(EnvSettings):
            hints: int = 0

    with pytest.raises(TypeError, match=r"Derived\.Settings must extend Base's"):

        class Derived(Base):
            class Settings(EnvSettings):
                rounds: int = 1
