"""Dataset rows, environments and agents that say, answer and raise anything."""

import asyncio
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from agentsgym import DirectOutputAgent, MultistepEnv, SamplingParams, ScriptedAgent, credit
from agentsgym.envs import ConfigError, UnknownEnvironment
from agentsgym.envs.extras import MissingExtra
from agentsgym.evaluation import evaluate
from agentsgym.rollout import run
from agentsgym.runs.files import RolloutWriter, read_stored
from fuzz.oracle import Area, refused_with
from fuzz.parts import chat_tokenizer, tiny_engine
from fuzz.values import TEXTS, nested, odd_values

# -- rows: any mapping that claims to be one -------------------------------------------------------

PATHS = st.sampled_from(
    ["TwentyQuestions", "Bandit", "Mastermind", "ClassicalReasoning", "os.system", "fuzz.values",
     "agentsgym.envs.TwentyQuestions", "agentsgym.cli.app.main", "builtins.eval", ""]
) | TEXTS  # fmt: skip
TASK_KEYS = st.sampled_from(
    ["solution", "seed", "split", "hints", "question", "answer", "answers", "kind", "task", "index",
     "size", "code", "game_file", "task_type", "probabilities", "arms", "table"]
)  # fmt: skip


TASKS = st.sampled_from(
    [
        ("TwentyQuestions", {"solution": "apple", "seed": 0}),
        ("Bandit", {"seed": 3}),
        ("Mastermind", {"seed": 3}),
        ("ClassicalReasoning", {"question": "1+1?", "answers": ["2"], "kind": "number"}),
    ]
)


@st.composite
def rows(draw: Any) -> Any:
    """A row that is right, but for what is not."""
    if draw(st.integers(0, 19)) == 0:
        return draw(odd_values())
    name, good = draw(TASKS)
    task = good | draw(st.dictionaries(TASK_KEYS, odd_values(), max_size=2))
    if draw(st.integers(0, 29)) == 0:
        task["seed"] = nested(20_000)
    row = {"env_class_path": name, "env_config": {}, "task_data": task}
    if draw(st.integers(0, 4)) == 0:
        row["env_class_path"] = draw(PATHS)
    if draw(st.integers(0, 9)) == 0:
        row[draw(st.sampled_from(list(row)))] = draw(odd_values())
    if draw(st.integers(0, 9)) == 0:
        del row[draw(st.sampled_from(list(row)))]
    return row


def check_row(row: Any) -> bool:
    """The row is refused, or played: well, or to a failed rollout that says why."""
    agent = ScriptedAgent(["Is it alive?", "[apple]"] * 40)
    try:
        batch = run([row], agent)
    except (ValueError, ConfigError, UnknownEnvironment, MissingExtra) as error:
        return refused_with(error)
    consistent(batch)
    return not batch.rollouts[0].failed


def consistent(batch: Any) -> None:
    """All of a batch can be read, and its lists agree."""
    values = dict(batch)
    assert {len(value) for value in values.values()} == {len(batch.rollouts)}
    for p, rollout in enumerate(batch.rollouts):
        tokens = ("full_token_ids", "full_attention_mask", "agent_token_mask", "per_token_rewards")
        assert len({len(values[key][p]) for key in tokens}) == 1
        assert len({len(values[f"padded_{key}"][p]) for key in tokens}) == 1
        trl = ("completion_ids", "action_mask", "logprobs")
        assert len({len(values[key][p]) for key in trl}) == 1
        both = values["prompt_ids"][p] + values["completion_ids"][p]
        assert both == values["full_token_ids"][p]
        steps = [step for episode in rollout.episodes for step in episode.steps]
        nested = [values[key][p] for key in ("ids", "mask", "rewards", "messages") if key in values]
        assert {len(value) for value in nested} <= {len(steps)}
        for step, messages in zip(steps, nested[-1] if nested else (), strict=False):
            assert messages[-1] == {"role": "assistant", "content": step.action}
        if rollout.failed:
            assert not any(values["agent_token_mask"][p]) and math.isnan(values["final_rewards"][p])
            assert rollout.error
            rollout.error.encode("utf-8")
            assert len(rollout.error) < 50_000, len(rollout.error)


ROWS_AREA = Area("rows", rows(), check_row, cost=2.0)

# -- environments and agents, at any point of a trial ----------------------------------------------

SCRIPTS: dict[int, "Script"] = {}


@dataclass(frozen=True)
class Script:
    """What an environment answers in each step, and what goes wrong in which call."""

    prompts: list[Any]
    answers: list[tuple[Any, Any, Any, Any]]
    actions: list[Any]
    breaks: dict[str, tuple[int, int]]  # call -> its number from which on it raises, and what
    config: dict[str, Any]
    max_rollout_tokens: int | None
    rollouts: int


class Broken(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Bare(BaseException):
    """No Exception, and no words."""

    def __str__(self) -> str:
        raise Bare


RAISED = (Broken, ValueError, SystemExit, RecursionError, MemoryError, KeyError, StopIteration,
          Bare, asyncio.CancelledError, GeneratorExit)  # fmt: skip


class FuzzedEnv(MultistepEnv):
    """Follows the script that its task names."""

    def _script(self, state: Any) -> Script:
        return SCRIPTS[state["script"]]

    def _call(self, script: Script, name: str, number: int) -> None:
        first, kind = script.breaks.get(name, (10**9, 0))
        if number >= first:
            raise RAISED[kind]("\ud800 broken \x1b[2J" + "x" * 10)

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> Any:
        script = SCRIPTS[task_data["script"]]
        self._call(script, "init", 0)
        task_data["nested"].append(session_id)
        assert task_data["nested"] == [session_id], "another session's task data"
        return {"script": task_data["script"], "played": 0}

    def _format_prompt(self, state: Any, step: int) -> Any:
        script = self._script(state)
        self._call(script, "prompt", step)
        return script.prompts[step % len(script.prompts)]

    def _step_episode(self, session_id: str, state: Any, action: str) -> Any:
        assert isinstance(action, str)
        script = self._script(state)
        self._call(script, "step", state["played"])
        _, reward, done, info = script.answers[state["played"] % len(script.answers)]
        return state | {"played": state["played"] + 1}, reward, done, info

    def _calculate_reward(self, state: Any, actions: Any, final: str, rewards: Any) -> Any:
        self._call(self._script(state), "reward", 0)
        return super()._calculate_reward(state, actions, final, rewards)

    def _format_reflection(self, state: Any, reward: float) -> str:
        self._call(self._script(state), "reflection", 0)
        return super()._format_reflection(state, reward)

    def _format_note_request(self, state: Any, step: int) -> str:
        self._call(self._script(state), "note", step)
        return super()._format_note_request(state, step)


class FuzzedAgent:
    """Says the script's actions and edits what it is given."""

    def __init__(self, actions: list[Any]) -> None:
        self._actions = actions

    def get_action(self, messages: list[Any], agent_state: Any) -> Any:
        turn = int(agent_state or 0)
        for message in messages:
            message["content"] = "edited"
        action = self._actions[turn % len(self._actions)]
        return (action, turn + 1) if isinstance(action, str) else action


def _cycle() -> dict[str, Any]:
    info: dict[str, Any] = {}
    info["self"] = info
    return info


INFOS = (
    st.just({})
    | odd_values()
    | st.fixed_dictionaries({"metrics": odd_values()})
    | st.fixed_dictionaries({"win": odd_values(0), "malformed": odd_values(0)})
    | st.fixed_dictionaries({"token_rewards": odd_values(0), "stop_reason": odd_values(0)})
    | st.fixed_dictionaries({"anchor": odd_values(0)})
    | st.builds(_cycle)
    | st.builds(lambda: {"deep": nested(5000)})
    | st.builds(lambda: {"object": object(), 3: {4}})
)
REWARDS = st.just(0.0) | st.just(1.0) | odd_values(0)
ANSWERS = st.tuples(st.none(), REWARDS, st.booleans() | odd_values(0), INFOS)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "episodes_per_trial": st.integers(1, 3),
        "max_steps_per_episode": st.integers(1, 4),
        "carry": st.sampled_from(["none", "full", "summary"]),
        "error_allowance": st.integers(0, 2),
        "reward_placement": st.sampled_from(["spread", "broadcast", "last_token"]),
        "final_reward": st.sampled_from(["last_step", "repeat", "spread"]),
        "system_prompt": TEXTS,
        "context_limit": st.integers(1, 99),
    },
)


def scripts(actions: st.SearchStrategy[Any]) -> st.SearchStrategy[Script]:
    """Scripts whose agent says what `actions` draws."""
    return st.builds(
        Script,
        prompts=st.lists(TEXTS | st.just("Guess.") | odd_values(0), min_size=1, max_size=3),
        answers=st.lists(ANSWERS, min_size=1, max_size=3),
        actions=st.lists(actions, min_size=1, max_size=3),
        breaks=st.dictionaries(
            st.sampled_from(["init", "prompt", "step", "reward", "reflection", "note"]),
            st.tuples(st.integers(0, 3), st.integers(0, len(RAISED) - 1)),
            max_size=1,
        ),
        config=CONFIGS,
        max_rollout_tokens=st.none() | st.integers(1, 200),
        rollouts=st.integers(1, 3),
    )


def check_text(script: Script) -> bool:
    """Played by an agent that speaks text, through `run_trial`."""
    env = FuzzedEnv(chat_tokenizer(), script.config)
    SCRIPTS[0] = script
    tasks = [{"script": 0, "nested": []}, {"script": 0, "nested": []}]
    batch = env.run_trial(
        tasks, FuzzedAgent(script.actions), script.rollouts, return_all_steps=True
    )
    assert not env.active_states and all(not task["nested"] for task in tasks)
    return _stored_and_credited(batch)


def check_engine(script: Script) -> bool:
    """Played by a model, evaluated, stored and credited."""
    engine = tiny_engine()
    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=6))
    SCRIPTS[0] = script
    row = {
        "env_class_path": "Fuzzed",
        "env_config": script.config,
        "task_data": {"script": 0, "nested": []},
    }
    batch = run([row, row], agent, script.rollouts, max_rollout_tokens=script.max_rollout_tokens)
    assert not engine._caches.sessions
    evaluate([row], agent, rollouts=2, max_rollout_tokens=script.max_rollout_tokens)
    return _stored_and_credited(batch)


def _stored_and_credited(batch: Any) -> bool:
    consistent(batch)
    with tempfile.TemporaryDirectory() as folder:
        RolloutWriter(Path(folder))(batch.rollouts, {"phase": "train", "step": 0})
        back = [line.rollout for line in read_stored(folder)]
        assert [r.session_id for r in back] == [r.session_id for r in batch.rollouts]
        assert [r.failed for r in back] == [r.failed for r in batch.rollouts]
    if batch.rows:
        for estimator in ("grpo", "step_return", "gigpo"):
            for row, numbers in zip(batch.rows, credit.advantages(batch, estimator), strict=True):
                assert len(numbers) == len(row.token_ids)
                assert all(n == n and abs(n) < float("inf") for n in numbers)
    return not any(r.failed for r in batch.rollouts)


TEXT_AREA = Area("sessions by text", scripts(TEXTS | odd_values(0)), check_text, cost=0.5)
ENGINE_AREA = Area("sessions by a model", scripts(TEXTS), check_engine, cost=3.0)
