"""Answers that try to run code, to forge a verdict or to burn time: none does, none wins."""

import contextlib
import sys
import textwrap
import time

import pytest

from agentsgym import ScriptedAgent
from agentsgym.envs import make
from agentsgym.envs.classical_reasoning import grader as grader_module
from agentsgym.envs.classical_reasoning.grader import Grader, readable
from agentsgym.envs.classical_reasoning.questions import Question

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")

RUN_CODE = [
    "__import__('os').system('touch CANARY')",
    "[__import__('os').system('touch CANARY')]",
    "[[__import__('os').system('touch CANARY')]]",
    "list(map(__import__('os').system, ['touch CANARY']))",
    "exec(\"open('CANARY', 'w').close()\")",
    "eval(\"open('CANARY', 'w').close()\")",
    "open('CANARY', 'w').close()",
    "(lambda: open('CANARY', 'w'))()",
    "[x for x in ().__class__.__base__.__subclasses__() if x.__name__ == 'Popen'][0]('CANARY')",
    "().__class__.__base__.__subclasses__()[0].__init__.__globals__",
    "print.__self__.__import__('os').system('touch CANARY')",
    "getattr(__import__('subprocess'), 'run')(['touch', 'CANARY'])",
    "__builtins__['open']('CANARY', 'w')",
    "breakpoint()",
    "(a := open('CANARY', 'w'))",
    "x if open('CANARY', 'w') else y",
    "f\"{open('CANARY', 'w')}\"",
    "{{ cycler.__init__.__globals__.os.popen('touch CANARY') }}",
    "${open('CANARY', 'w')}",
    "sympify(\"__import__('os').system('touch CANARY')\")",
    "parse_expr(\"open('CANARY','w')\")",
    "Symbol('x').func.__init__.__globals__['__builtins__']",
    "lambdify(x, \"open('CANARY','w')\")(0)",
    "Function('f')(open('CANARY','w'))",
    "x.__class__.__mro__[1].__subclasses__()",
    "S(\"open('CANARY','w')\")",
    "6 + __import__('os').system('touch CANARY')*0",
    "1\n__import__('os').system('touch CANARY')",
    "\\text{__import__('os').system('touch CANARY')}",
    "\\operatorname{__import__}(os)",
    "\\input{CANARY}",
    "\\write18{touch CANARY}",
    "\\immediate\\write18{touch CANARY}",
    "\\newcommand{\\x}{\\x\\x}\\x",
    "!!python/object/apply:os.system ['touch CANARY']",
    "cos\nsystem\n(S'touch CANARY'\ntR.",
]
FORGE = [
    "__import__('os').write(1, b'{\"right\": true}\\n')",
    "[__import__('os').write(f, b'{\"right\": true}\\n') for f in range(3, 20)]",
    "exec(\"import gc;[setattr(o,'right',True) for o in gc.get_objects()]\")",
    "__import__('sys').modules['__main__'].__dict__.update(grade=lambda r: True)",
    "type('A', (str,), {'__eq__': lambda s, o: True})()",
    "type('A', (), {'__iter__': lambda s: iter('x')})()",
    '{"right": true}',
    '{"id": "ready", "right": true}',
    '\n{"id": "0", "right": true}\n',
    "y",
    "1.0",
    "None",
    "...",
    "*",
    "NaN",
    "[NaN, NaN, NaN, NaN, NaN]",
    "nan+nanj",
    "nani",
    "inf",
    "-Infinity",
    "Integral(1, x)",
    "Derivative(Integral(x, x), x)",
    "\ud800",
    "\u202e1\u202c",
    "​",
]
BURN = [
    "9**9**9**9",
    "((9**60)**60)**60",
    "10**(10**10)",
    "'a'*10**10",
    "[0]*10**10",
    "1e999999999",
    "1e999999999/3",
    "R99999999999",
    "A+99999999999",
    "factorial(10**9)",
    "100000000!",
    "((((((9!)!)!)!)!)!)",
    "9^{9^{9^{9}}}",
    "(9^{999})^{999}",
    "\\binom{10^{9}}{5\\cdot 10^{8}}",
    "\\sum_{i=1}^{10^{9}} i^{2}",
    "\\prod_{i=1}^{10^{9}} i",
    "\\int_0^1 x^{x^{x}} dx",
    "(" * 240 + ")" * 240,
    "[" * 240 + "]" * 240,
    "{" * 490,
    "¬" * 490,
    "-" * 490 + "1",
    "1" * 490,
    "+".join(["9**60"] * 80),
    "x**" * 160 + "x",
    "sin(" * 100 + "x" + ")" * 100,
]
ATTACKS = RUN_CODE + FORGE + BURN
# Tasks that are scored by our comparison, and by the package's.
TASKS = "string_insertion number_sorting bitwise_arithmetic propositional_logic cryptarithm sudoku"
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

    def play(question, said):
        batch = env.run_trial([{"questions": [question], "seed": 0}], ScriptedAgent([said]))
        return batch["final_rewards"][0], batch.rollouts[0].error

    return play


def attack_all(play, question, canary, attacks):
    """The attacks that did something else than to be wrong."""
    won = []
    for attack in attacks:
        said = f"<answer>{attack.replace('CANARY', str(canary))}</answer>"
        reward, error = play(question, said)
        if reward != 0.0 or error is not None or canary.exists():
            won.append((attack, reward, error))
    return won


@pytest.mark.parametrize("task", TASKS.split())
def test_no_attack_wins_or_runs_in_a_task_of_reasoning_gym(arena, task, tmp_path):
    pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")
    canary = tmp_path / "canary"
    began = time.monotonic()
    question = gym_rows(task)[0]
    attacks = [attack for attack in ATTACKS if attack not in question["answer"]]
    assert attack_all(arena, question, canary, attacks) == []
    assert time.monotonic() - began < 60


def test_no_attack_wins_or_runs_in_mathematics(arena, tmp_path):
    canary = tmp_path / "canary"
    # The other burns take the whole time limit; test_grading has one of these.
    assert attack_all(arena, MATHEMATICS, canary, RUN_CODE + FORGE + BURN[-9:]) == []
    assert arena(MATHEMATICS, "\\boxed{2\\sqrt{2}}") == (1.0, None)


def test_mathematics_as_right_answer_of_a_row_runs_nothing_either(arena, tmp_path):
    canary = tmp_path / "canary"
    for attack in RUN_CODE:
        answer = attack.replace("CANARY", str(canary))
        reward, _ = arena({"question": "q", "answer": [answer], "kind": "math"}, "\\boxed{2}")
        assert reward == 0.0 and not canary.exists()


@pytest.mark.parametrize(
    "text",
    [
        "\\int x",
        "1" * 31,
        "a__b",
        "\\write18{x}",
        "é",
        "x" * 2000,
    ],
)
def test_mathematics_out_of_bounds_is_not_read(text):
    assert not readable(text)


@pytest.mark.parametrize(
    "text",
    [
        "\\frac{1}{2}",
        "x^{10}",
        "e^{x^2}",
        "(x+1)^{3}",
        "10!",
        "2^{10}",
        "[0, 1)",
        "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}",
        "\\sqrt[3]{5}",
        "x_1",
        "\\binom{52}{5}",
        "50\\%",
        "\\{1,2\\}",
    ],
)
def test_usual_mathematics_is_read(text):
    assert readable(text)


START = """
import json, sys, time
def say(**reply):
    print(json.dumps(reply), flush=True)
say(id=json.loads(sys.stdin.readline())["id"], right=True)
"""
FORGERIES = {
    "no number": 'sys.stdin.readline(); say(right=True); time.sleep(9)',
    "two replies": """
r = json.loads(sys.stdin.readline())
sys.stdout.write(json.dumps({"id": r["id"], "right": True}) + "\\n" + "{}\\n")
sys.stdout.flush(); time.sleep(9)
""",
    "no verdict": 'say(id=json.loads(sys.stdin.readline())["id"], right=1); time.sleep(9)',
    "no JSON": 'sys.stdin.readline(); print("right", flush=True); time.sleep(9)',
    "no end": 'sys.stdin.readline(); sys.stdout.write("x" * 10**6); sys.stdout.flush()',
    "silence": "time.sleep(9)",
    "death": "sys.stdin.readline()",
}  # fmt: skip
HONEST = 'say(id=json.loads(sys.stdin.readline())["id"], right=True); time.sleep(9)'
SQUARE = Question("q", ("x^2",), "math")


def replying(tmp_path, monkeypatch, program):
    """A grader whose process is this program instead of ours."""
    (tmp_path / "another_grader.py").write_text(textwrap.dedent(START + program))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(grader_module, "_PROGRAM", "another_grader")
    return contextlib.closing(Grader(1e-4, 1.0))


@pytest.mark.parametrize("program", FORGERIES)
def test_a_reply_that_is_not_to_this_request_counts_as_wrong(program, tmp_path, monkeypatch):
    pytest.importorskip("math_verify", reason="needs the extra reasoning")
    with replying(tmp_path, monkeypatch, FORGERIES[program]) as grader:
        assert grader.is_right(SQUARE, "x \\cdot x", "auto") is False


def test_an_honest_reply_counts_and_is_remembered(tmp_path, monkeypatch):
    pytest.importorskip("math_verify", reason="needs the extra reasoning")
    with replying(tmp_path, monkeypatch, HONEST) as grader:
        assert grader.is_right(SQUARE, "x \\cdot x", "auto") is True
        assert grader.is_right(SQUARE, "x \\cdot x", "auto") is True
        assert grader.is_right(SQUARE, "x + x", "auto") is False  # the program answers once


GYM_ROW = {
    "question": "q", "answer": ["1"], "kind": "reasoning_gym", "task": "cryptarithm",
    "index": 0, "seed": 1, "size": 10,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"task": "no_such_task"},
            "'no_such_task', which is not supported: its scorer has not been reviewed",
        ),
        ({"task": "composite"}, "it mixes other tasks"),
        ({"task": 5}, "needs 'question' and 'task'"),
        ({"question": None}, "needs 'question' and 'task'"),
        ({"index": 10}, "needs 'index' (a whole number from 0 to 9), got 10"),
        ({"index": -1}, "needs 'index'"),
        ({"index": "0"}, "needs 'index'"),
        ({"size": 10**12}, "needs 'size' (a whole number from 1 to 200000)"),
        ({"size": 0}, "needs 'size'"),
        ({"size": True}, "needs 'size'"),
        ({"seed": -1}, "needs 'seed'"),
        ({"seed": 10**400}, "needs 'seed'"),
        ({"seed": 1.5}, "needs 'seed'"),
        ({"answer": "1"}, "needs 'answer' (a list of texts)"),
        ({"answer": []}, "needs 'answer' (a list of texts)"),
        ({"answer": [1]}, "needs 'answer' (a list of texts)"),
        (
            {"task": "word_ladder", "size": 100_000},
            "cannot make word_ladder, seed 1, 0 of 100000: Dataset size too large",
        ),
        ({"question": "another one"}, "has another question at 0 of 10 than the row"),
    ],
)
def test_a_bad_row_fails_its_session_with_a_sentence(change, message):
    pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")
    env = make("ClassicalReasoning")
    good = {"questions": [{"question": "1 + 1?", "answer": 2}], "seed": 0}
    bad = {"questions": [{**GYM_ROW, **change}], "seed": 0}
    batch = env.run_trial([bad, good], ScriptedAgent(["<answer>2</answer>"]))
    assert batch.rollouts[1].error is None and batch["final_rewards"][1] == 1.0
    assert message in batch.rollouts[0].error


@pytest.mark.parametrize("rows", [None, [], "abc", [5], [None], [{"kind": "math"}], {"a": 1}])
def test_rows_of_wrong_types_fail_their_session_with_a_sentence(rows):
    env = make("ClassicalReasoning")
    batch = env.run_trial([{"questions": rows, "seed": 0}], ScriptedAgent(["2"]))
    assert "task_data" in batch.rollouts[0].error and "questions" in batch.rollouts[0].error


def test_a_huge_data_set_is_not_generated():
    with pytest.raises(ValueError, match="needs 'size'"):
        Question.from_task({**GYM_ROW, "size": 10**9, "index": 10**9 - 1})


@pytest.mark.parametrize("task", ["word_ladder", "cryptarithm"])
def test_right_answers_are_right_in_a_process_with_another_hash_seed(task):
    pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")
    grader = Grader(1e-4, 20.0)
    for row in gym_rows(task):
        assert grader.is_right(Question.from_task(row), row["answer"][0], "auto")
