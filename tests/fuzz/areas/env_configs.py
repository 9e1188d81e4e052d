"""`env_config` of the environments that need nothing but this package."""

from hypothesis import strategies as st

from agentsgym import make
from agentsgym.envs import ConfigError
from agentsgym.envs.extras import MissingExtra
from fuzz.oracle import Area, refused_with
from fuzz.values import odd_values

NAMES = ("TwentyQuestions", "Bandit", "Mastermind", "ClassicalReasoning", "ALFWorld", "TextWorld")
VALUES = st.integers(0, 9) | st.booleans() | odd_values(1)


def _keys() -> list[tuple[str, str]]:
    from agentsgym.envs.registry import find

    return [
        (name, key) for name in NAMES for key in (*find(name).Settings.model_fields, "nonsense")
    ]


@st.composite
def configs(draw):  # type: ignore[no-untyped-def]
    """(environment, configuration)."""
    name, key = draw(st.sampled_from(_keys()))
    config = {key: draw(VALUES)}
    if draw(st.booleans()):
        other = draw(st.sampled_from([k for n, k in _keys() if n == name]))
        config[other] = draw(VALUES)
    return name, config


def check(case: tuple[str, dict]) -> bool:
    """An environment, or a sentence that names the key."""
    name, config = case
    try:
        make(name, None, config)
    except (ConfigError, MissingExtra) as error:
        return refused_with(error)
    return True


AREA = Area("environment configurations", st.deferred(configs), check)
