"""Answers that try to run code, to forge a verdict or to burn time: none does, none wins."""

import contextlib
import os
import platform
import subprocess
import sys
import textwrap
import time

import pytest

from agentsgym import ScriptedAgent
from agentsgym.envs import make
from agentsgym.envs.classical_reasoning import grader as grader_module
from agentsgym.envs.classical_reasoning.grader import ProcessGrader
from agentsgym.envs.classical_reasoning.judge import Judge
from agentsgym.envs.classical_reasoning.landlock import forbid_changes
from agentsgym.envs.classical_reasoning.math_grammar import readable
from agentsgym.envs.classical_reasoning.questions import Question
from agentsgym.envs.classical_reasoning.seccomp import forbid_calls

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Landlock, seccomp, /proc")

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
EVALUATING = (
    "countdown puzzle24 string_insertion binary_matrix spiral_matrix n_queens simple_integration "
    "intermediate_integration polynomial_multiplication coin_flip bitwise_arithmetic "
    "number_sorting complex_arithmetic game_of_life_halting rubiks_cube rush_hour power_function "
    "propositional_logic cryptarithm"
)
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
    env = make("ClassicalReasoning", None, {"grader_timeout": 3.0})

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


@pytest.mark.parametrize("task", EVALUATING.split())
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
    assert attack_all(arena, MATHEMATICS, canary, ATTACKS) == []
    assert arena(MATHEMATICS, "\\boxed{2\\sqrt{2}}") == (1.0, None)


@pytest.mark.slow
def test_no_attack_wins_or_runs_in_any_installed_task(arena, tmp_path):
    gym = pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")
    for task in sorted(set(gym.factory.DATASETS) - {"composite", "knight_swap"}):
        question = gym_rows(task)[0]
        attacks = [a for a in ATTACKS if a.strip() not in question["answer"]]
        assert attack_all(arena, question, tmp_path / "canary", attacks) == [], task


def test_mathematics_as_right_answer_of_a_row_runs_nothing_either(arena, tmp_path):
    canary = tmp_path / "canary"
    for attack in RUN_CODE:
        answer = attack.replace("CANARY", str(canary))
        reward, _ = arena({"question": "q", "answer": [answer], "kind": "math"}, "\\boxed{2}")
        assert reward == 0.0 and not canary.exists()


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^{9}}",
        "((9^{9})^{999})^{999}",
        "9^{99999}",
        "x^{10^{2}}",
        "\\binom{10^{9}}{5}",
        "\\binom{99999}{5}",
        "\\binom{\\binom{9}{4}}{9}",
        "5!!",
        "1000!",
        "\\int x",
        "1" * 31,
        "a__b",
        "\\write18{x}",
        "é",
        "x" * 2000,
    ],
)
def test_mathematics_out_of_bounds_is_not_read(text):
    assert readable(text) is None


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
    assert readable(text) == text


INSIDE = """
import ctypes, errno, os, signal, socket, subprocess, sys
import sympy
from agentsgym.envs.classical_reasoning import grader_process
from agentsgym.envs.classical_reasoning.confinement import confine

def apart(verdict, seconds):
    try:
        return grader_process._apart(verdict, {"seconds": seconds})
    except grader_process.NoVerdict:
        return None

def held(attack):
    try:
        attack()
    except (OSError, ValueError, MemoryError):
        return True
    return False

def memory_of_the_parent():
    open(f"/proc/{os.getppid()}/mem", "rb").read(1)

def descriptors_of_the_parent():
    for number in os.listdir(f"/proc/{os.getppid()}/fd"):
        os.open(f"/proc/{os.getppid()}/fd/{number}", os.O_RDONLY)

def every_descriptor():
    for number in set(range(200)) - {3}:
        try:
            os.write(number, b"{}")
        except OSError:
            continue
        return
    raise OSError

ATTACKS = [
    lambda: open(CANARY, "w"), lambda: open(CANARY, "a"), lambda: os.mkdir(CANARY),
    lambda: os.symlink("/", CANARY), lambda: os.open(CANARY, os.O_CREAT | os.O_RDONLY),
    lambda: os.chmod(sys.executable, 0o777), lambda: os.utime(sys.executable),
    lambda: os.open("/tmp", os.O_TMPFILE | os.O_RDWR), lambda: os.truncate(__file__, 0),
    lambda: socket.socket(), lambda: socket.socketpair(), lambda: os.fork(),
    lambda: subprocess.run(["touch", CANARY]), lambda: os.execv("/bin/true", ["true"]),
    lambda: os.kill(os.getppid(), 0), lambda: os.kill(os.getpid(), 0),
    lambda: os.memfd_create("x"), lambda: bytearray(8 * 2**30),
    memory_of_the_parent, descriptors_of_the_parent, every_descriptor,
]
parent = os.getppid()
missing = confine()
outcome = []
for number, attack in enumerate(ATTACKS):
    if apart(lambda: held(attack), 20) is not True:
        outcome.append(number)
burnt = apart(lambda: 9**9**9**9 > 0, 0.5)
silent = apart(lambda: os._exit(0), 5)
twice = apart(lambda: os.write(3, b"yy"), 5)
raised = apart(lambda: 1 / 0, 5)
print(missing, outcome, burnt, silent, twice, raised)
"""


@LINUX
def test_code_that_did_run_in_the_fork_could_change_and_reach_nothing(tmp_path):
    program = INSIDE.replace("CANARY", repr(str(tmp_path / "canary")))
    path = tmp_path / "inside.py"
    path.write_text(program)
    said = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    missing, _, rest = said.stdout.strip().partition("] ")
    if missing != "[":
        pytest.skip(f"this machine lacks {missing}")
    assert rest == "[] None None None None", said.stderr
    assert not (tmp_path / "canary").exists()


def _replying(tmp_path, monkeypatch, program):
    """A grader whose process is this program instead of ours."""
    (tmp_path / "another_grader.py").write_text(textwrap.dedent(START + program))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(grader_module, "_PROGRAM", "another_grader")
    return ProcessGrader(1.0, [])


START = """
import json, sys, time
def say(**reply):
    print(json.dumps(reply), flush=True)
say(id="ready", missing=[])
first = json.loads(sys.stdin.readline())
say(id=first["id"], right=True)
"""
FORGERIES = {
    "no number": 'sys.stdin.readline(); say(right=True); time.sleep(9)',
    "an earlier number": 'sys.stdin.readline(); say(id=first["id"], right=True); time.sleep(9)',
    "before it is asked": 'time.sleep(0.3); say(id="", right=True); time.sleep(9)',
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


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_reply_that_is_not_to_this_request_counts_as_wrong(forgery, tmp_path, monkeypatch):
    grader = _replying(tmp_path, monkeypatch, FORGERIES[forgery])
    with contextlib.closing(grader):
        if forgery == "before it is asked":
            grader._child = grader_module._start([])
            time.sleep(0.6)
        assert grader.ask({"kind": "math", "right": "1", "given": "1"}) is False
        assert grader.failures == 1 and grader._child is None


def test_an_honest_reply_counts(tmp_path, monkeypatch):
    honest = 'say(id=json.loads(sys.stdin.readline())["id"], right=True); time.sleep(9)'
    with contextlib.closing(_replying(tmp_path, monkeypatch, honest)) as grader:
        assert grader.ask({"kind": "math", "right": "1", "given": "1"}) is True


def test_a_verdict_is_remembered_unless_it_was_late(tmp_path, monkeypatch):
    once = """
for reply in ({"right": True}, {"right": False, "late": True}, {"right": True}):
    say(id=json.loads(sys.stdin.readline())["id"], **reply)
"""
    one, other = ({"kind": "math", "right": "1", "given": given} for given in "12")
    with contextlib.closing(_replying(tmp_path, monkeypatch, once)) as grader:
        assert [grader.ask(one), grader.ask(one), grader.ask(one)] == [True] * 3
        assert [grader.ask(other), grader.ask(other), grader.ask(other)] == [False, True, True]


def test_what_a_machine_can_not_do_is_said_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(grader_module, "_TOLD", set())
    honest = "time.sleep(9)"
    lacking = START.replace("missing=[]", 'missing=["no Landlock in this kernel"]')
    monkeypatch.setitem(globals(), "START", lacking)
    for _ in range(2):
        with contextlib.closing(_replying(tmp_path, monkeypatch, honest)) as grader:
            grader._child = grader_module._start([])
    assert caplog.text.count("no Landlock in this kernel") == 1


def test_a_machine_without_these_protections_is_told_and_left_as_it_is(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert forbid_calls(processes=True) == f"no seccomp on {platform.system()} riscv64"
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert forbid_changes() == ["no Landlock on Darwin"]


@LINUX
def test_the_graders_process_has_no_environment_and_no_descriptors_of_ours(monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET_KEY", "abc123")
    (tmp_path / "json.py").write_text("raise SystemExit('code of the working directory ran')")
    monkeypatch.chdir(tmp_path)
    with open(tmp_path / "open", "w") as mine, contextlib.closing(ProcessGrader(5, [])) as grader:
        os.set_inheritable(mine.fileno(), True)
        assert grader.ask({"kind": "warm", "modules": ["math"]})
        process = f"/proc/{grader._child._process.pid}"
        with open(f"{process}/environ") as environment:
            names = {entry.partition("=")[0] for entry in environment.read().split("\0")} - {""}
        assert names <= {"PYTHONPATH", "OMP_NUM_THREADS", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE"}
        held = [os.readlink(f"{process}/fd/{number}") for number in os.listdir(f"{process}/fd")]
        assert all(name.startswith("pipe:") or name == os.devnull for name in held), held


@LINUX
def test_a_busy_grader_ends_within_two_seconds_of_its_killed_parent(tmp_path):
    (tmp_path / "busy.py").write_text("9**9**9**9")
    program = """
        from agentsgym.envs.classical_reasoning import grader
        child = grader._start([])
        print(child._process.pid, flush=True)
        child.ask({"kind": "warm", "modules": ["busy"]}, 60)
    """
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    child = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 2.0
    while _running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _running(child)


def _running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


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


@pytest.mark.parametrize("task", ["word_ladder", "cryptarithm", "simple_integration", "countdown"])
def test_right_answers_are_right_in_a_process_with_another_hash_seed(task):
    pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")
    judge = Judge(1e-4, 20.0)
    for row in gym_rows(task):
        assert judge.is_right(Question.from_task(row), row["answer"][0], "auto")
