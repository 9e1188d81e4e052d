"""Files of JSON lines as sets of tasks: any row by its number."""

import json

import pytest

from agentsgym.envs import EnvPool, check_rows, make
from agentsgym.envs.dataset import TaskFile, own_tasks


def rows_of(count):
    return [
        {"env_class_path": "Bandit", "env_config": {}, "task_data": {"seed": k, "text": "é" * k}}
        for k in range(count)
    ]


def written(path, lines, end="\n"):
    path.write_bytes(("\n".join(lines) + end).encode())
    return path


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("count", [1, 16, 33])
def test_rows_have_the_numbers_of_their_lines(tmp_path, end, count):
    rows = rows_of(count)
    tasks = TaskFile(written(tmp_path / "a.jsonl", map(json.dumps, rows), end))
    assert len(tasks) == count and list(tasks) == rows
    assert [tasks[n] for n in reversed(range(count))] == rows[::-1]
    assert tasks[-1] == rows[-1]
    for number in (count, -count - 1):
        with pytest.raises(IndexError):
            tasks[number]


def test_an_empty_file_has_no_rows(tmp_path):
    assert len(TaskFile(written(tmp_path / "a.jsonl", [], ""))) == 0


def test_a_line_that_is_no_task_is_named(tmp_path):
    lines = [*map(json.dumps, rows_of(20)), '{"env_class', "", "[1]"]
    problems = check_rows(TaskFile(written(tmp_path / "a.jsonl", lines)), EnvPool())
    assert [text.partition(":")[0] for text in problems] == ["line 21", "line 22", "line 23"]
    assert "got '{\"env_class'" in problems[0]


def test_a_line_may_be_a_task_of_the_environment(tmp_path):
    """With other settings than its own if it says so."""
    env = make("Bandit", None, {"arms": 3})
    lines = ['{"seed": 1}', '{"task_data": {"seed": 2}}']
    lines.append('{"task_data": {"seed": 3}, "env_config": {}}')
    rows = list(TaskFile(written(tmp_path / "a.jsonl", lines), env))
    own = {"env_class_path": env.class_path, "env_config": {"arms": 3}}
    assert rows[:2] == [own | {"task_data": {"seed": k}} for k in (1, 2)]
    assert own_tasks(env, [*rows, "no row"]) == [{"seed": 1}, {"seed": 2}]
    assert rows[2] == own | {"task_data": {"seed": 3}, "env_config": {}}
