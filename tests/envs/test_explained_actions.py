"""The first prompt of an episode says the form of an action, with a legal example. (The tests of
ALFWorld and TextWorld, which must make their games, are in their folders.)"""

import pytest

import agentsgym
from agentsgym import ScriptedAgent
from agentsgym.envs.builtin import BUILTIN
from agentsgym.envs.extras import MissingExtra
from helpers import example_in_first_prompt

ECHO = {"table": "quickstart", "hints": 2, "answer_style": "echo"}
CASES = [
    *((name, {}) for name in BUILTIN if name not in ("ALFWorld", "TextWorld")),
    ("TwentyQuestions", {"hardcore": True}),
    ("TwentyQuestions", ECHO),
    ("Bandit", {"arms": 8}),
    ("TextArena/Mastermind", {"variant": "extreme"}),
]


def environment(name, config):
    try:
        return agentsgym.make(name, None, config)
    except MissingExtra as error:
        pytest.skip(str(error))


def tasks_of(env):
    if env.name.startswith("TextArena/"):
        return [{"seed": 0}] if env.one_puzzle else [{"seed": seed} for seed in (2, 1_000_003)]
    return list(env.get_eval_dataset()["task_data"])[:3]


@pytest.mark.parametrize(("name", "config"), CASES)
def test_the_first_prompt_has_a_legal_action_as_an_example_unless_that_is_off(name, config):
    env = environment(name, config)
    for task in tasks_of(env):
        example = example_in_first_prompt(env, task)
        (step, *_) = env.run_trial([task], ScriptedAgent([example])).rollouts[0].episodes[0].steps
        assert not step.malformed and not step.info.get("metrics", {}).get("unparsed")
        assert example in step.observation
    plain = environment(name, {**config, "explain_actions": False})
    first = plain._format_prompt(plain._initialize_episode("s", task), 0)
    assert not first.endswith(f"For example:\n{example}")


def test_equal_public_facts_give_equal_examples():
    """The example depends on what the player sees, never on the solution."""
    env = agentsgym.make("TwentyQuestions", None, {})
    examples = {example_in_first_prompt(env, {"solution": word}) for word in ("dog", "car", "key")}
    assert len(examples) == 1
