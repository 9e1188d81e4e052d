"""Whatever an environment or agent does in one session ends that session alone, and is recorded."""

import asyncio
import math
from pathlib import Path

import pytest

from agentsgym import DirectOutputAgent, EnvPool, SamplingParams, ScriptedAgent, register
from agentsgym.envs.dataset import row_problem
from agentsgym.evaluation import evaluate
from agentsgym.evaluation.metrics import record, summarize
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import run
from agentsgym.runs.files.rollouts import RolloutWriter, read_rollouts
from helpers import CHATML, CountdownEnv, build_tokenizer

PLAIN = build_tokenizer(None)
CHAT = build_tokenizer(CHATML)


class Mute(RuntimeError):
    """An exception that cannot be shown."""

    def __str__(self):
        raise ValueError("no")

    __repr__ = __str__


class Bare(BaseException):
    """An exception that is no Exception, and cannot be shown."""

    def __str__(self):
        raise Bare

    __repr__ = __str__


class Odd:
    """An object that answers no question."""

    def __repr__(self):
        raise SystemError("no")

    __bool__ = __float__ = __len__ = __iter__ = __repr__


def cyclic():
    value = {"a": 1}
    value["self"] = value
    return value


def raising(error):
    def fault(state):
        raise error

    return fault


def answering(reward=0.0, done=False, info=None):
    return lambda state: (state, reward, done, {} if info is None else info)


def recursive(state):
    return recursive(state)


FATAL = {
    "exit": raising(SystemExit(3)),
    "closes the generator": raising(GeneratorExit()),
    "cancels": raising(asyncio.CancelledError()),
    "no Exception": raising(Bare()),
    "a group": raising(BaseExceptionGroup("two", [Bare(), asyncio.CancelledError()])),
    "stop iteration": raising(StopIteration(1)),
    "memory": raising(MemoryError()),
    "cannot be shown": raising(Mute()),
    "a long message": raising(ValueError("x" * 10**7)),
    "endless recursion": recursive,
    "no tuple": lambda state: None,
    "three values": lambda state: (state, 0.0, False),
    "no info": answering(info=3),
    "reward is nan": answering(math.nan),
    "reward is huge": answering(1e308),
    "reward is a huge integer": answering(10**400),
    "reward is text": answering("1.0"),
    "reward is odd": answering(Odd()),
    "done is odd": answering(done=Odd()),
    "metrics is text": answering(info={"metrics": "regret"}),
    "a metric is text": answering(info={"metrics": {"regret": "much"}}),
    "win is odd": answering(info={"win": Odd()}),
    "anchor is a list": answering(info={"anchor": [1]}),
    "stop reason is a dict": answering(done=True, info={"stop_reason": {}}),
    "token rewards are nan": answering(info={"token_rewards": [math.nan]}),
    "token rewards are a number": answering(info={"token_rewards": 1.0}),
}
HARMLESS = {
    "a metric is nan": answering(info={"metrics": {"regret": math.nan}}),
    "a metric is huge": answering(info={"metrics": {"regret": 1e308}}),
    "a metric is a huge integer": answering(info={"metrics": {"regret": 10**400}}),
    "info is cyclic": answering(info=cyclic()),
    "info holds an object": answering(info={"what": Odd(), "n": 10**9999, 3: {4}}),
    "info holds half a pair": answering(info={"\udc00": ["\ud800"], "anchor": "\ud800"}),
    "stop reason is half a pair": answering(done=True, info={"stop_reason": "\ud800"}),
}
FAULTS = FATAL | HARMLESS


class FaultyEnv(CountdownEnv):
    """Does in its second step what the task says."""

    def _step_episode(self, session_id, state, action):
        if len(state["played"]) == 1 and state["fault"]:
            return FAULTS[state["fault"]](state | {"fault": None})
        return super()._step_episode(session_id, state, action)

    def _initialize_episode(self, session_id, task_data):
        return super()._initialize_episode(session_id, task_data) | {
            "fault": task_data.get("fault")
        }


class BlockingFaultyEnv(FaultyEnv):
    blocking = True


@pytest.fixture(autouse=True)
def names():
    register("Faulty", FaultyEnv)
    register("BlockingFaulty", BlockingFaultyEnv)


def rows(names, name="Faulty", config=None):
    return [
        {
            "env_class_path": name,
            "env_config": config or {},
            "task_data": {"rewards": [0.0, 1.0], "fault": fault},
        }
        for fault in names
    ]


def assert_recorded(rollouts, folder: Path):
    """Rollouts can be written and read, counted, and given credit."""
    RolloutWriter(folder)(rollouts, {"phase": "train", "step": 0})
    back = list(read_rollouts(folder))
    assert [(r.session_id, r.failed) for r in back] == [(r.session_id, r.failed) for r in rollouts]
    figures = summarize([record(rollout) for rollout in rollouts])
    assert math.isfinite(figures.get("regret", 0.0))
    assert math.isfinite(figures["reward"]) and math.isfinite(figures["reward_std"])


def test_every_fault_ends_its_own_session(tmp_path):
    names = [*FAULTS, None]
    played = evaluate(rows(names), ScriptedAgent(["a"]), rollouts=len(names), envs=EnvPool(PLAIN))
    failed = [name for name, r in zip(names, played.rollouts, strict=True) if r.failed]
    assert failed == list(FATAL)
    assert played.evaluation.failures == len(FATAL)
    for rollout in played.rollouts:
        assert len(rollout.error or "") < 30_000
        assert not rollout.failed or rollout.session_id in rollout.error
        (rollout.error or "").encode()
    assert_recorded(played.rollouts, tmp_path)


@pytest.mark.parametrize("name", ["Faulty", "BlockingFaulty"])
def test_faults_under_an_engine_end_their_own_session(name, tiny_llama, chat_tokenizer, tmp_path):
    engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=8)
    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=1))
    names = [
        None,
        "exit",
        "cancels",
        "no Exception",
        "stop iteration",
        "three values",
        "exit",
        None,
    ]
    batch = run(rows(names, name), agent)
    assert [rollout.failed for rollout in batch.rollouts] == [False, *[True] * 6, False]
    assert batch["final_rewards"][0] == batch["final_rewards"][-1] == 1.0
    assert_recorded(batch.rollouts, tmp_path)
    assert engine.poll() == [] and not engine._caches.sessions


class BareHooksEnv(CountdownEnv):
    """Raises in each hook that is no part of a step."""

    def _raise(self, *arguments):
        raise Bare

    check_task = reference_score = _end_episode = _format_answer = _raise


def test_hooks_around_an_episode_end_nothing_else(caplog):
    register("BareHooks", BareHooksEnv)
    (row,) = rows([None], "BareHooks")
    assert "BareHooks: " in row_problem(row, EnvPool(PLAIN))
    played = evaluate([row], ScriptedAgent(["a"]), rollouts=1)
    assert played.evaluation.reward == 1.0 and played.evaluation.regret is None
    assert "the reference score of a task: Bare" in caplog.text
    assert "_end_episode failed" in caplog.text


def test_an_interrupt_ends_the_run():
    class Interrupted(CountdownEnv):
        def _step_episode(self, session_id, state, action):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted(PLAIN).run_trial([{}], ScriptedAgent(["a"]))


def test_tasks_nested_too_deep_fail_alone(tmp_path):
    deep = []
    for _ in range(20_000):
        deep = [deep]
    tasks = [{"deep": deep}, {"rewards": [1.0]}]
    batch = FaultyEnv(PLAIN).run_trial(tasks, ScriptedAgent(["a"]))
    assert [rollout.failed for rollout in batch.rollouts] == [True, False]
    assert "RecursionError" in batch.rollouts[0].error
    assert len(batch.rollouts[0].error) < 30_000
    assert_recorded(batch.rollouts, tmp_path)


@pytest.mark.parametrize("tokenizer", [PLAIN, CHAT, None])
@pytest.mark.parametrize("carry", ["full", "summary"])
def test_half_a_surrogate_pair_is_replaced_wherever_text_enters(tokenizer, carry, tmp_path):
    half = "\ud800!"

    class Half(CountdownEnv):
        def _format_prompt(self, state, step):
            return half

        def _format_result(self, state, reward):
            return half

    config = {"episodes_per_trial": 2, "carry": carry, "system_prompt": half}
    env = Half(tokenizer, config)
    batch = env.run_trial([{"note": half}], ScriptedAgent([half]), return_all_steps=True)
    (rollout,) = batch.rollouts
    assert not rollout.failed, rollout.error
    texts = [m["content"] for e in rollout.episodes for m in e.messages]
    texts += [t for e in rollout.episodes for s in e.steps for t in (s.observation, s.action)]
    assert any("\ufffd!" in text for text in texts)
    for text in texts:
        text.encode()
    assert_recorded(batch.rollouts, tmp_path)


def test_an_engines_text_is_cleaned_and_its_ids_are_law(tiny_llama, chat_tokenizer, monkeypatch):
    engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=2)
    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=2))
    clean = CountdownEnv(chat_tokenizer).run_trial([{"rewards": [1.0]}], agent)
    real = engine.poll

    def poll():
        from dataclasses import replace

        return [replace(result, text=result.text + "\ud800") for result in real()]

    monkeypatch.setattr(engine, "poll", poll)
    batch = CountdownEnv(chat_tokenizer).run_trial([{"rewards": [1.0]}], agent)
    assert batch["full_token_ids"] == clean["full_token_ids"]
    assert batch.rollouts[0].episodes[0].steps[0].action.endswith("\ufffd")


def test_an_agent_that_edits_messages_edits_no_record():
    class Editor:
        def get_action(self, messages, agent_state):
            for message in messages:
                message["content"] = "edited"
            messages.clear()
            return "a", None

    batch = CountdownEnv(PLAIN).run_trial([{"rewards": [0.0, 1.0]}], Editor())
    contents = [m["content"] for m in batch["final_completion_messages"][0]]
    assert contents == ["Is it an animal?", "a", "The number is 1", "a"]
