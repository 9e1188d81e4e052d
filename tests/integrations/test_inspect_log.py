"""Runs as Inspect's logs, read back by Inspect. Run with `make test-doors DOOR=inspect`."""

from dataclasses import replace

import pytest

pytest.importorskip("inspect_ai", reason="needs inspect-ai: make test-doors DOOR=inspect")

from inspect_ai.log import list_eval_logs, read_eval_log
from typer.testing import CliRunner

from agentsgym import ScriptedAgent
from agentsgym.cli.app import app
from agentsgym.envs import ConfigError
from agentsgym.integrations.inspect.log import write_logs
from agentsgym.report.export.write import Filters
from agentsgym.report.stored import Source
from agentsgym.runs.files import RolloutWriter, read_rollouts
from helpers import CHATML, CountdownEnv, build_tokenizer
from viewer_runs import HOSTILE, make_hostile_run, make_run

FREE_SHOT = {"episodes_per_trial": 2, "free_shots": 1}


def played(root, config, games, phase="after"):
    """A run directory: for each task the scripts of its rollouts."""
    env = CountdownEnv(build_tokenizer(CHATML), config)
    rollouts = []
    for group, (rewards, scripts) in enumerate(games):
        for index, lines in enumerate(scripts):
            task = {"rewards": rewards, "solution": f"word {group}"}
            (one,) = env.run_trial([task], ScriptedAgent(lines)).rollouts
            rollouts.append(replace(one, group=group, index=index, session_id=f"{group}-{index}"))
    RolloutWriter(root)(rollouts, {"phase": phase, "step": 7, "advantages": None})
    return root


GAMES = [
    ([0.0, 0.25], [["first words", "second words"], ["first words", "fail"]]),
    ([0.0, 1.0], [["bad", "other words"]]),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return played(tmp_path_factory.mktemp("runs") / "run", {}, GAMES)


@pytest.fixture(scope="module")
def logs(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs") / "logs"
    written = write_logs(Source(run), folder)
    assert written.rollouts == 3 and written.examples == 1
    return folder


def read(folder):
    (log,) = list_eval_logs(str(folder))
    return read_eval_log(log, resolve_attachments=True)


def events(sample, kind):
    return [event for event in sample.events if event.event == kind]


def test_inspect_reads_what_was_played(run, logs):
    log = read(logs)
    assert log.status == "success" and log.eval.model == "run"
    assert log.eval.task == "helpers.CountdownEnv-after-7"
    assert log.eval.metadata == {"run": "run", "phase": "after", "step": 7, "dataset": None}
    samples = {(sample.id, sample.epoch): sample for sample in log.samples}
    assert set(samples) == {(0, 1), (0, 2), (1, 1)}
    for rollout in read_rollouts(run):
        sample = samples[rollout.group, rollout.index + 1]
        (episode,) = rollout.episodes
        assert [(m.role, m.text) for m in sample.messages] == [
            (m["role"], m["content"]) for m in episode.messages
        ]
        turns = events(sample, "model")
        assert [turn.output.completion for turn in turns] == [s.action for s in episode.steps]
        for turn, step in zip(turns, episode.steps, strict=True):
            assert turn.input[-1].text == step.observation
        scores = [event.score for event in events(sample, "score")]
        assert [score.value for score in scores] == [step.reward for step in episode.steps]
        assert sample.metadata["task_data"] == rollout.task_data
        assert sample.input == "Is it an animal?" and sample.target == f"word {rollout.group}"
        if not rollout.failed:
            assert sample.scores["reward"].value == rollout.final_reward
            (usage,) = sample.model_usage.values()
            assert usage.output_tokens == rollout.agent_tokens
    assert samples[0, 1].scores["win"].value == 1.0
    malformed = events(samples[1, 1], "score")[0].score
    assert "malformed" in malformed.explanation and malformed.metadata["malformed"] is True


def test_a_failed_rollout_is_an_error_without_scores(logs):
    log = read(logs)
    (failed,) = [sample for sample in log.samples if sample.error]
    assert failed.scores is None and "the environment broke" in failed.error.message
    assert "Traceback" in failed.error.traceback
    assert log.results.total_samples == 3 and log.results.completed_samples == 2
    reward = next(score for score in log.results.scores if score.name == "reward")
    assert reward.metrics["mean"].value == pytest.approx((0.25 + 1.0) / 2)
    assert reward.unscored_samples == 1


@pytest.mark.parametrize("carry", ["none", "full"])
def test_each_episode_is_a_span_and_free_shots_are_marked(tmp_path, carry):
    config = {**FREE_SHOT, "carry": carry}
    played(tmp_path / "run", config, [([0.0, 1.0], [["a", "b", "c", "d"]])])
    write_logs(Source(tmp_path / "run"), tmp_path / "logs")
    (sample,) = read(tmp_path / "logs").samples
    begun = events(sample, "span_begin")
    assert [span.name for span in begun] == ["episode 1 (free shot)", "episode 2"]
    by_span = [
        [e.output.completion for e in events(sample, "model") if e.span_id == s.id] for s in begun
    ]
    assert by_span == [["a", "b"], ["c", "d"]]
    assert [info.data["scored"] for info in events(sample, "info")] == [False, True]
    (rollout,) = read_rollouts(tmp_path / "run")
    replies = [m.text for m in sample.messages if m.role == "assistant"]
    assert replies == ["a", "b", "c", "d"]  # no episode's words twice
    last = events(sample, "model")[-1].input
    assert [m.text for m in last] == [m["content"] for m in rollout.conversations()[-1][0][:-1]]


def test_evaluations_are_written_unless_a_phase_is_named(tmp_path, plain_tokenizer):
    run = make_run(tmp_path / "run", plain_tokenizer)
    result = CliRunner().invoke(
        app, ["export", str(run), "--to", "inspect", "--out", str(tmp_path / "logs")]
    )
    assert result.exit_code == 0 and "2 logs from 12 of" in result.output
    named = sorted(
        log.eval.task for log in map(read_eval_log, list_eval_logs(str(tmp_path / "logs")))
    )
    assert named == ["Puzzle-after-3", "Puzzle-before-0"]
    filters = Filters(phases=("train",), steps=(1, 2), won=True)
    written = write_logs(Source(run), tmp_path / "train", filters)
    assert (written.examples, written.rollouts) == (2, 4)
    with pytest.raises(ConfigError, match="exists"):
        write_logs(Source(run), tmp_path / "logs")


def test_hostile_texts_are_only_text(tmp_path, plain_tokenizer):
    run = make_hostile_run(tmp_path / "run", plain_tokenizer)
    write_logs(Source(run), tmp_path / "logs", Filters(phases=("train",)))
    log = read(tmp_path / "logs")
    assert log.eval.viewer.trust_content is False
    replies = {turn.output.completion for sample in log.samples for turn in events(sample, "model")}
    assert {text.encode(errors="replace").decode() for text in HOSTILE.values()} & replies
