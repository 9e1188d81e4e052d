"""ToolEnv: an author's functions and methods are called, and errors are answers."""

import asyncio
import time
from typing import Literal

import pytest

from agentsgym import Outcome, ScriptedAgent, ToolEnv, tool
from agentsgym.envs import ConfigError
from agentsgym.types import Answer
from agentsgym.types.tool_actions import calling, said
from rollout.doubles import SumEnv


def add(a: int, b: int = 1) -> int:
    """Adds two numbers.

    Args:
        a: the first number,
            a whole one
        b: the second number
    """
    return a + b


async def wait(seconds: float) -> str:
    """Waits."""
    await asyncio.sleep(seconds)
    return "waited"


async def leave() -> str:
    """Exits."""
    raise SystemExit(2)


async def interrupt() -> str:
    """Interrupts the loop of all async tools."""
    raise KeyboardInterrupt


async def block() -> str:
    """Blocks the loop of all async tools."""
    time.sleep(0.5)
    return "blocked"


class Mute(BaseException):
    """No Exception, and it cannot be shown."""

    def __str__(self):
        raise BaseException


CRASHES = {
    "raise": ValueError("broken"),
    "exit": SystemExit(1),
    "mute": Mute(),
}


def crash(how: Literal[tuple(CRASHES)]) -> None:
    """Fails."""
    raise CRASHES[how]


class Unshown:
    """A result that cannot be shown."""

    def __repr__(self):
        raise Mute


def unshown() -> Unshown:
    """Returns something odd."""
    return Unshown()


async def bid(amount: float, ends: bool = False, won: bool | None = None) -> Outcome:
    """Pays what is bid."""
    return Outcome({"bid": amount}, amount if won is None else won, ends)


PAID = {"text": "much", "nan": float("nan"), "end": 1.0}


def wrong(what: Literal[tuple(PAID)]) -> Outcome:
    """Pays what is no number, or does not say whether it ends."""
    return Outcome("?", PAID[what], "no" if what == "end" else False)


class ShopEnv(ToolEnv):
    tools = (add, wait, bid, wrong, leave, interrupt, block, crash, unshown)

    def _initialize_episode(self, session_id, task_data):
        return {"prompt": "How much?", "price": task_data.get("price", 3), "asked": []}

    @tool
    def price(self, state, item: str) -> dict:
        """The price of an item."""
        state["asked"].append(item)
        return {"item": item, "price": state["price"]}

    def grade(self, state, answer):
        return answer.strip() == str(state["price"])


def stepped(words, config=None, unread=0):
    env = ShopEnv(None, config)
    state = env._initialize_episode("s", {})
    return env._step_episode("s", state, Answer(said(words), unread=unread))


def answers(*actions, config=None):
    """The contents of the messages that answer an action with these calls."""
    state, reward, done, _ = stepped("\n".join(actions), config)
    assert (reward, done) == (0.0, False)
    return [message["content"] for message in state["results"]]


def schemas(env):
    return {one["function"]["name"]: one["function"] for one in env.tool_schemas}


def test_schemas_come_from_hints_and_docstrings():
    found = schemas(ShopEnv())
    assert [*found][:2] == ["add", "wait"] and [*found][-1] == "price"
    assert found["add"] == {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "the first number, a whole one"},
                "b": {"type": "integer", "default": 1, "description": "the second number"},
            },
            "required": ["a"],
        },
    }
    assert found["crash"]["parameters"]["properties"]["how"]["enum"] == list(CRASHES)
    assert list(found["price"]["parameters"]["properties"]) == ["item"]


def test_calls_of_one_action_run_in_order_and_each_has_its_result():
    calls = calling("price", item="tea"), calling("add", a=2, b=5), calling("price", item="milk")
    env = ShopEnv()
    state, reward, done, info = stepped("\n".join(calls))
    assert state["asked"] == ["tea", "milk"]
    assert env._format_prompt(state, 1) == [
        {"role": "tool", "name": "price", "content": '{"item": "tea", "price": 3}'},
        {"role": "tool", "name": "add", "content": "7"},
        {"role": "tool", "name": "price", "content": '{"item": "milk", "price": 3}'},
    ]
    assert (reward, done) == (0.0, False)
    assert info["metrics"] == {
        "tool_calls/attempted": 3,
        "tool_calls/parsed": 3,
        "tool_calls/executed": 3,
        "tool_calls/failed": 0,
    }


@pytest.mark.parametrize(("answer", "won"), [(" 3\n", True), ("4", False)])
def test_an_answer_without_a_call_ends_the_episode_and_is_graded(answer, won):
    _, reward, done, info = stepped(answer)
    assert (reward, done, info["win"]) == (float(won), True, won)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (calling("ad", a=1), "Error: there is no tool 'ad'; did you mean 'add'"),
        (calling("add"), "Error: a: Missing required"),
        (calling("add", a="x"), "Error: a: Input should be a valid integer"),
        (calling("add", a=1, c=2), "Error: c: Unexpected keyword argument"),
        (calling("crash", how="raise"), "Error: ValueError: broken"),
        (calling("crash", how="exit"), "Error: SystemExit: 1"),
        (calling("wait", seconds=60), "Error: no result within 0.05 seconds"),
        (calling("crash", how="mute"), "Error: Mute"),
        (calling("unshown"), "Error: Mute"),
        (calling("leave"), "Error: SystemExit: 2"),
        (calling("interrupt"), "Error: KeyboardInterrupt"),
        (calling("block"), "Error: no result within 0.05 seconds"),
    ],
)
def test_a_call_that_fails_is_answered_with_the_error(action, said):
    state, _, _, info = stepped(action, {"tool_seconds": 0.05})
    (message,) = state["results"]
    assert message["content"].startswith(said)
    assert not info["malformed"]
    metrics = info["metrics"]
    assert (metrics["tool_calls/executed"], metrics["tool_calls/failed"]) == (0, 1)


def test_an_async_function_is_awaited_in_the_sessions_own_thread():
    assert answers(calling("wait", seconds=0)) == ["waited"]
    assert ShopEnv().blocking
    assert not SumEnv().blocking


def test_a_call_that_could_not_be_read_is_malformed_and_ends_nothing():
    state, reward, done, info = stepped("3", unread=1)
    assert [message["role"] for message in state["results"]] == ["user"]
    assert (reward, done, info["malformed"]) == (0.0, False, True)
    assert "nothing ran" in state["results"][0]["content"]


def test_beside_a_call_that_ran_the_agent_is_told_what_did_not():
    state, _, _, info = stepped(calling("add", a=2, b=3), unread=2)
    result, told = state["results"]
    assert (result["role"], result["content"], told["role"]) == ("tool", "5", "user")
    assert "nothing ran" not in told["content"] and "2 of 3 calls" in told["content"]
    assert not info["malformed"] and info["metrics"]["tool_calls/executed"] == 1


def test_rewards_of_the_calls_of_an_action_add_up():
    calls = calling("bid", amount=0.5), calling("price", item="tea"), calling("bid", amount=-2)
    state, reward, done, info = stepped("\n".join(calls))
    assert (reward, done) == (-1.5, False) and "win" not in info
    assert [m["content"] for m in state["results"]] == [
        '{"bid": 0.5}',
        '{"item": "tea", "price": 3}',
        '{"bid": -2.0}',
    ]


def test_a_call_that_ends_the_episode_is_the_last_that_runs():
    bids = [calling("bid", amount=a, ends=a == 2.0) for a in (1.0, 2.0, 4.0)]
    state, reward, done, info = stepped("\n".join([*bids, calling("price", item="tea")]))
    assert (reward, done, state["asked"]) == (3.0, True, [])
    assert [m["content"] for m in state["results"][2:]] == [
        "Error: an earlier call ended the episode"
    ] * 2
    assert info["metrics"]["tool_calls/executed"] == 2
    assert not info["malformed"] and "win" not in info


@pytest.mark.parametrize("won", [True, False])
def test_a_truth_value_that_ends_the_episode_is_a_win_or_none(won):
    _, reward, done, info = stepped(calling("bid", amount=3, ends=True, won=won))
    assert (reward, done, info["win"]) == (float(won), True, won)
    _, reward, done, info = stepped(calling("bid", amount=3, won=won))
    assert (reward, done, info.get("win")) == (float(won), False, None)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("text", "the reward of the tool wrong must be a finite number .*'much'"),
        ("nan", "the reward of the tool wrong must be a finite number .*nan"),
        ("end", "done of the tool wrong must be True or False, got 'no'"),
    ],
)
def test_an_outcome_that_is_none_fails_the_rollout_and_is_no_answer(what, said):
    with pytest.raises(ValueError, match=said):
        stepped(calling("wrong", what=what))


def test_a_step_earns_what_its_calls_pay_and_grade_is_not_asked():
    env = ShopEnv()
    agent = ScriptedAgent([calling("bid", amount=0.25), calling("bid", amount=1, ends=True), "3"])
    batch = env.run_trial([{}], agent)
    (episode,) = batch.rollouts[0].episodes
    assert [step.reward for step in episode.steps] == [0.25, 1.0]
    assert batch["final_rewards"] == [1.25] and episode.stop_reason == "done"


def test_a_long_result_loses_its_middle():
    (text,) = answers(calling("price", item="x" * 1000), config={"result_characters": 100})
    assert len(text) < 150
    assert "characters" in text


def test_numbers_and_texts_are_converted_to_what_the_hints_say():
    assert answers(calling("add", a="2", b=3.0)) == ["5"]


def no_docstring(a: int) -> int:
    return a


def no_hint(a):
    """Adds."""


def many(*a: int) -> int:
    """Adds."""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([no_docstring], "no_docstring needs a docstring"),
        ([no_hint], "no_hint needs a type hint for its parameter 'a'"),
        ([many], "many needs a type hint"),
        ([add, add], "two tools of the name 'add'"),
        ([3], "a tool is a function"),
    ],
)
def test_a_tool_that_cannot_be_described_is_refused(wrong, said):
    env_class = type("WrongEnv", (ToolEnv,), {"tools": wrong})
    with pytest.raises(ConfigError, match=said):
        env_class()


def test_an_environment_with_tools_has_no_other_action_form():
    with pytest.raises(ConfigError, match="action_form"):
        ShopEnv(None, {"action_form": "tool"})
