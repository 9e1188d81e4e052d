"""The table of rollouts that trackers get."""

import html
import logging
from types import SimpleNamespace

import numpy as np
import pytest

from agentsgym.training import GRPOEnvConfig, tracker_tables
from agentsgym.training.rollout_table import COLUMNS, LONGEST, table_rows
from agentsgym.training.tracker_tables import TrackerTables, markdown_table
from agentsgym.types import Episode, Rollout, Row, Step, StepSpan

STATE = SimpleNamespace(global_step=7, is_world_process_zero=True)


def rollout(action="b", error=None, rows=()):
    step = Step(0, "a?", action, 1.0, True, {"win": True})
    episode = Episode(0, (step,), 1.0, 1.0, "done")
    return Rollout("s1", 0, 0, "Digit", {}, {"seed": 3}, (episode,), tuple(rows), error)


def test_a_row_of_the_table():
    spans = (StepSpan(0, 0, 1, 3),)
    row = Row("s1", 0, 0, (1, 2, 3), (0.0,) * 3, spans)
    (line,) = table_rows([rollout(rows=[row])], [np.array([9.0, 1.0, 2.0])], 4, "train")
    assert dict(zip(COLUMNS, line.cells())) == {
        "step": 4,
        "phase": "train",
        "env": "Digit",
        "task": '{"seed": 3}',
        "reward": 1.0,
        "win": 1.0,
        "steps": 1,
        "stop_reason": "done",
        "advantage": 1.5,
        "conversation": "[user] a?\n\n[assistant] b",
        "error": "",
        "session_id": "s1",
    }


def test_a_failed_rollout_a_huge_one_and_one_that_prints_escapes():
    failed, huge, escapes = table_rows(
        [rollout(error="Traceback\nOSError: gone"), rollout("x" * 10**6), rollout("\x1b[2J\ud800")],
        None,
        0,
        "eval",
    )
    assert (failed.reward, failed.stop_reason, failed.error) == (None, "error", "OSError: gone")
    assert failed.advantage is None
    assert len(huge.conversation) < LONGEST + 100
    assert escapes.conversation.endswith("[assistant] \u241b[2J\ufffd")


def test_tensorboard_shows_what_a_model_wrote_as_text():
    plugins = pytest.importorskip("tensorboard.plugin_util", reason="needs the extra tensorboard")
    said = "![x](http://evil/p.png) <b>*hi*</b> a|b `c` <script>1</script> &lt; [d](http://e)\n# f"
    shown = plugins.markdown_to_safe_html(
        markdown_table(table_rows([rollout(said)], None, 0, "eval"))
    )
    assert not any(f"<{tag}" in shown for tag in ("img", "b>", "a ", "em", "code", "script", "h1"))
    assert shown.count("<tr>") == 2 and shown.count("<td>") == len(COLUMNS)
    text = html.unescape(shown.replace("<br>", "\n"))
    assert said in text


def test_a_table_holds_the_first_rollouts_that_no_table_had(monkeypatch):
    written = []
    writers = {"wandb": lambda rows, step, _: written.append((step, [r.phase for r in rows]))}
    monkeypatch.setattr(tracker_tables, "WRITERS", writers)
    tables = TrackerTables(["wandb", "comet_ml"], 2, lambda: None)
    tables.keep([rollout()] * 5, {"phase": "train", "advantages": None})
    tables.keep([rollout()] * 1, {"phase": "eval", "advantages": None, "dataset": "hard"})
    tables.on_log(None, STATE, None)
    tables.on_log(None, STATE, None)
    assert written == [(7, ["train", "train", "eval_hard"])]


def test_a_tracker_that_fails_gets_no_more_tables_and_training_goes_on(monkeypatch, caplog):
    def fail(*_):
        raise OSError("the server is gone")

    monkeypatch.setattr(tracker_tables, "WRITERS", {"wandb": fail})
    tables = TrackerTables(["wandb"], 2, lambda: None)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            tables.keep([rollout()], {"phase": "train", "advantages": None})
            tables.on_log(None, STATE, None)
    assert [r.getMessage() for r in caplog.records] == [
        "wandb gets no more tables of rollouts: the server is gone"
    ]


def test_trackers_are_told_the_settings_without_credentials(tmp_path):
    urls = ["http://me:hunter2@there"]
    args = GRPOEnvConfig(output_dir=str(tmp_path), use_cpu=True, engine_urls=urls)
    assert args.to_dict()["engine_urls"] == ["http://***@there"]
    assert "hunter2" not in args.to_json_string() and args.engine_urls == urls
