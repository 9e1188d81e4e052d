"""Answers that try to run code, to forge a verdict or to burn time: none does, none wins."""

import pytest

from agentsgym import ScriptedAgent
from agentsgym.envs import make

RUN_CODE = [
    "__import__('os').system('touch CANARY')",
    "[[__import__('os').system('touch CANARY')]]",
    "exec(\"open('CANARY', 'w').close()\")",
    "[x for x in ().__class__.__base__.__subclasses__() if x.__name__ == 'Popen'][0]('CANARY')",
    "parse_expr(\"open('CANARY','w')\")",
    "6 + __import__('os').system('touch CANARY')*0",
    "\\text{__import__('os').system('touch CANARY')}",
    "\\input{CANARY}",
]
FORGE = [
    "[__import__('os').write(f, b'{\"right\": true}\\n') for f in range(3, 20)]",
    "type('A', (str,), {'__eq__': lambda s, o: True})()",
    '{"right": true}',
    "1.0",
    "[NaN, NaN, NaN, NaN, NaN]",
    "nan+nanj",
    "Derivative(Integral(x, x), x)",
    "\ud800",
]
BURN = [
    "9**9**9**9",
    "1e999999999/3",
    "((((((9!)!)!)!)!)!)",
    "9^{9^{9^{9}}}",
    "\\binom{10^{9}}{5\\cdot 10^{8}}",
    "\\sum_{i=1}^{10^{9}} i^{2}",
    "\\int_0^1 x^{x^{x}} dx",
    "(" * 240 + ")" * 240,
    "{" * 490,
    "1" * 490,
    "sin(" * 100 + "x" + ")" * 100,
]
ATTACKS = RUN_CODE + FORGE + BURN
TASKS = "number_sorting sudoku"
MATHEMATICS = {"question": "q", "answer": ["\\sqrt{8}"], "kind": "math"}


def gym_rows(task):
    env = make(
        "ClassicalReasoning",
        None,
        {"source": "reasoning_gym", "gym_tasks": [task], "gym_questions": 2, "eval_share": 0.5},
    )
    return [row["task_data"]["questions"][0] for row in env.get_train_dataset()]


@pytest.fixture(scope="module")
def arena():
    """Plays one answer to a question through an episode; (reward, error)."""
    pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")
    env = make("ClassicalReasoning", None, {"grader_timeout": 1.0})

    def play(question, action):
        batch = env.run_trial([{"questions": [question], "seed": 0}], ScriptedAgent([action]))
        return batch["final_rewards"][0], batch.rollouts[0].error

    return play


def attack_all(play, question, canary, attacks):
    """The attacks that did something else than to be wrong."""
    won = []
    for attack in attacks:
        action = f"<answer>{attack.replace('CANARY', str(canary))}</answer>"
        reward, error = play(question, action)
        if reward != 0.0 or error is not None or canary.exists():
            won.append((attack, reward, error))
    return won


@pytest.mark.parametrize("task", TASKS.split())
def test_no_attack_wins_or_runs_in_a_task_of_reasoning_gym(arena, task, tmp_path):
    pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")
    canary = tmp_path / "canary"
    question = gym_rows(task)[0]
    attacks = [attack for attack in ATTACKS if attack not in question["answer"]]
    assert attack_all(arena, question, canary, attacks) == []


def test_no_attack_wins_or_runs_in_mathematics(arena, tmp_path):
    canary = tmp_path / "canary"
    # Many burns take the whole time limit; test_grading has one more of these.
    assert attack_all(arena, MATHEMATICS, canary, RUN_CODE + FORGE + BURN[7:8]) == []
    assert arena(MATHEMATICS, "\\boxed{2\\sqrt{2}}") == (1.0, None)


def test_mathematics_as_right_answer_of_a_row_runs_nothing_either(arena, tmp_path):
    canary = tmp_path / "canary"
    for attack in RUN_CODE:
        answer = attack.replace("CANARY", str(canary))
        reward, _ = arena({"question": "q", "answer": [answer], "kind": "math"}, "\\boxed{2}")
        assert reward == 0.0 and not canary.exists()


@pytest.mark.parametrize("rows", [None, [], "abc", [5], [{"kind": "math"}]])
def test_rows_of_wrong_types_fail_their_session_with_a_sentence(rows):
    env = make("ClassicalReasoning")
    batch = env.run_trial([{"questions": rows, "seed": 0}], ScriptedAgent(["2"]))
    assert "task_data" in batch.rollouts[0].error and "questions" in batch.rollouts[0].error
