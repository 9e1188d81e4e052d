"""Dataset rows: any mapping that claims to be one."""

from typing import Any

from hypothesis import strategies as st

from agentsgym import ScriptedAgent
from agentsgym.envs import ConfigError, UnknownEnvironment
from agentsgym.envs.extras import MissingExtra
from agentsgym.rollout import run
from fuzz.oracle import Area, refused_with
from fuzz.values import TEXTS, nested, odd_values

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


def check(row: Any) -> bool:
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
    told = dict(batch)
    number = len(batch.rollouts)
    for name, value in told.items():
        assert isinstance(value, list), name
    assert len(told["final_rewards"]) == len(told["session_ids"]) == number
    for ids, mask, attention in zip(
        told["full_token_ids"],
        told["agent_token_mask"],
        told["full_attention_mask"],
        strict=True,
    ):
        assert len(ids) == len(mask) == len(attention)
    for rollout in batch.rollouts:
        if rollout.failed:
            assert rollout.error
            rollout.error.encode("utf-8")
            assert len(rollout.error) < 50_000, len(rollout.error)


AREA = Area("rows", rows(), check, cost=2.0)
