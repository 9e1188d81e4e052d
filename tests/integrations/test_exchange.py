"""A foreign coroutine played as our session: equal to native play, and never a hang."""

import asyncio
import ctypes
import threading
import time

import pytest

from agentsgym import MultistepEnv, ScriptedAgent
from agentsgym.integrations.exchange import (
    Exchange,
    ExchangeEnded,
    ExchangeError,
    LoopDied,
    LoopThread,
)

FAST = 5.0
"""Seconds within which a fault must show."""


@pytest.fixture
def loop():
    thread = LoopThread("foreign")
    yield thread
    thread.close()


async def count_to(number, exchange):
    """A framework that owns its loop: it asks until it hears its number; fewer asks earn more."""
    messages = [{"role": "user", "content": "say a number"}]
    for turn in range(1, 10):
        reply = await exchange.ask(messages)
        messages += [{"role": "assistant", "content": reply}]
        if reply == str(number):
            return 1.0 / turn
        messages += [{"role": "user", "content": f"not {reply}"}]
    return 0.0


class ForeignEnv(MultistepEnv):
    """Plays `play(task_data, exchange)` of a foreign framework."""

    blocking = True

    def __init__(self, loop, play, **options):
        super().__init__()
        self.loop, self.play, self.options = loop, play, options

    def _initialize_episode(self, session_id, task_data):
        exchange = Exchange(self.loop, lambda e: self.play(task_data, e), **self.options)
        return {"exchange": exchange, "messages": exchange.wait()}

    def _format_prompt(self, state, step):
        return state["messages"][-1]["content"]

    def _step_episode(self, session_id, state, action):
        exchange = state["exchange"]
        exchange.say(action)
        messages = exchange.wait()
        if messages is None:
            return state, exchange.result, True, {"win": exchange.result > 0}
        return {**state, "messages": messages}, 0.0, False, {}

    def _calculate_reward(self, state, actions, final_action, step_rewards):
        return sum(step_rewards)

    def _end_episode(self, session_id, state):
        state["exchange"].close()


def tasks_in(loop):
    return loop.run(_count_tasks())


async def _count_tasks():
    return len(asyncio.all_tasks()) - 1


def test_a_foreign_game_is_played_and_leaves_nothing_behind(loop):
    env = ForeignEnv(loop, lambda task, e: count_to(task["number"], e))
    batch = env.run_trial([{"number": 3}, {"number": 1}], ScriptedAgent(["1", "2", "3"]))
    assert batch["final_rewards"] == [1 / 3, 1.0]
    conversation = [m["content"] for m in batch["final_completion_messages"][0]]
    assert conversation == ["say a number", "1", "not 1", "2", "not 2", "3"]
    assert tasks_in(loop) == 0


def test_a_limit_of_ours_closes_the_foreign_game(loop):
    closed = []

    async def long_game(task, exchange):
        try:
            while True:
                await exchange.ask([{"role": "user", "content": "more"}])
        finally:
            closed.append(task["k"])

    env = ForeignEnv(loop, long_game)
    env.run_trial([{"k": 1}, {"k": 2}], ScriptedAgent(["x"]))
    assert tasks_in(loop) == 0 and sorted(closed) == [1, 2]


def test_an_ended_exchange_may_still_give_a_result(loop):
    async def scores_at_the_end(exchange):
        try:
            await exchange.ask([])
        except ExchangeEnded:
            with pytest.raises(ExchangeEnded):
                await exchange.ask([])
            return 0.5

    exchange = Exchange(loop, scores_at_the_end)
    assert exchange.wait() == []
    with pytest.raises(RuntimeError, match="not returned yet"):
        _ = exchange.result
    exchange.end()
    assert exchange.wait() is None and exchange.wait() is None
    assert exchange.result == 0.5


def test_two_questions_at_once_are_an_error_of_the_coroutine(loop):
    async def asks_twice(exchange):
        await asyncio.gather(exchange.ask([]), exchange.ask([]))

    exchange = Exchange(loop, asks_twice)
    exchange.wait()
    with pytest.raises(ExchangeError, match="one question at a time"):
        exchange.wait()


async def raises(exchange):
    raise ValueError("broken")


async def exits(exchange):
    raise SystemExit("not authenticated")


async def kills_its_thread(exchange):
    identity, end = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(SystemExit)
    kill = ctypes.pythonapi.PyThreadState_SetAsyncExc
    asyncio.get_running_loop().call_soon(kill, identity, end)
    await asyncio.sleep(60)


async def hangs(exchange):
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (raises, "ValueError: broken"),
        (exits, "SystemExit: not authenticated"),
        (kills_its_thread, "has ended with SystemExit"),
        (hangs, "no question within 0.3 seconds"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("first", [True, False], ids=["at once", "after an action"])
def test_a_fault_is_a_failed_rollout_within_seconds(loop, fault, message, first):
    async def game(task, exchange):
        if not first:
            await exchange.ask([{"role": "user", "content": "go"}])
        return await fault(exchange)

    env = ForeignEnv(loop, game, timeout=0.3 if "within" in message else 60.0)
    start = time.monotonic()
    (rollout,) = env.run_trial([{}], ScriptedAgent(["x"])).rollouts
    assert time.monotonic() - start < FAST
    assert rollout.failed and message in rollout.error
    assert len(rollout.episodes) == (0 if first else 1)


def test_a_dead_loop_tells_whoever_uses_it(loop):
    async def exit_soon(exchange):
        asyncio.get_running_loop().call_soon(exit, "gone")
        await exchange.ask([])

    exchange = Exchange(loop, exit_soon)
    exchange.wait()
    with pytest.raises(LoopDied, match="foreign has ended with SystemExit"):
        exchange.wait()
    assert not loop.alive
    for use in (lambda: exchange.say("x"), exchange.end, lambda: Exchange(loop, raises)):
        with pytest.raises(LoopDied):
            use()
    with pytest.raises(LoopDied):
        loop.run(_count_tasks())
    exchange.close()
