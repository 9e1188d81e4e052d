"""Figures of rollouts of several environments, worked out by hand; one definition for all."""

import json
import math
from dataclasses import replace

from agentsgym import MultistepEnv, ScriptedAgent
from agentsgym.envs import register
from agentsgym.evaluation import Evaluation, assess, evaluate
from agentsgym.evaluation.metrics import record, summarize
from of_rows import episode_of, redrawn, rollout_of, step_of


def episode(rewards, metrics=None, win=None, index=0, reason="done"):
    infos = [{"metrics": metrics or {}} for _ in rewards]
    if win is not None:
        infos[-1]["win"] = win
    pairs = zip(rewards, infos, strict=True)
    steps = [step_of(k, reward=r, info=info) for k, (r, info) in enumerate(pairs)]
    return episode_of(*steps, index=index, reason=reason)


def rollout(env, *episodes, error=None, task=0):
    return rollout_of(episodes, group=task, env=env, task={"seed": task}, error=error)


# A tells wins and best_arm; its second rollout says nothing of a win: lost. B tells neither.
MIXED = [
    rollout("A", episode([0.0, 1.0], {"best_arm": 1.0}, win=True), task=0),
    rollout("A", episode([0.0, 0.0], {"best_arm": 0.5}, reason="max_steps"), task=1),
    rollout("B", episode([2.0, 0.0, 1.0, 0.0, 0.0, 0.0], {"moves": 3.0}), task=2),
    rollout("B", episode([9.0], {"moves": 3.0}), error="broke", task=3),
]


def test_each_figure_is_over_the_environments_that_have_it():
    means = summarize([record(one) for one in MIXED])
    assert means["best_arm"] == (2 * 1.0 + 2 * 0.5) / 4
    assert means["moves"] == 6 * 3.0 / 6
    assert means["win_rate"] == 1 / 2
    assert means["reward"] == (1 + 0 + 3) / 3 and means["steps"] == (2 + 2 + 6) / 3
    assert means["failed"] == 1 / 4
    assert (means["stop/done"], means["stop/max_steps"], means["stop/error"]) == (0.5, 0.25, 0.25)
    assert means["malformed"] == means["truncated"] == 0.0


def test_each_environment_has_its_own_figures():
    figures = summarize([record(one) for one in MIXED])
    assert (figures["env/A/reward"], figures["env/A/win_rate"]) == (0.5, 0.5)
    assert (figures["env/A/best_arm"], figures["env/A/failed"]) == (0.75, 0.0)
    assert (figures["env/B/reward"], figures["env/B/steps"], figures["env/B/failed"]) == (3, 6, 0.5)
    assert "env/B/win_rate" not in figures and "env/B/best_arm" not in figures


def test_one_environment_alone_keeps_the_plain_names():
    figures = summarize([record(one) for one in MIXED[:2]])
    assert not any(name.startswith("env/") for name in figures)
    assert (figures["win_rate"], figures["best_arm"], figures["reward_std"]) == (0.5, 0.75, 0.5)
    detailed = summarize([record(one) for one in MIXED[:2]], per_environment=True)
    assert detailed["env/A/reward"] == figures["reward"]


def test_training_and_evaluation_agree():
    figures, logged = assess(MIXED), summarize([record(one) for one in MIXED])
    assert figures.win_rate == logged["win_rate"] == 0.5
    assert figures.reward == logged["reward"] and figures.mean_steps == logged["steps"]
    assert figures.metrics == {
        n: logged[n] for n in ("best_arm", "moves", "malformed", "truncated")
    }
    for path, own in figures.environments.items():
        assert own.win_rate == logged.get(f"env/{path}/win_rate")
        assert own.reward == logged[f"env/{path}/reward"]
        assert own.metrics.get("best_arm") == logged.get(f"env/{path}/best_arm")
    assert [own.failures for own in figures.environments.values()] == [0, 1]
    assert assess(MIXED[:2]).environments == {}


def test_regret_is_over_the_environments_whose_references_are_known():
    evaluation = assess(MIXED, [1.0, 1.0, None, None])
    assert (evaluation.reference, evaluation.regret) == (1.0, 0.5)
    assert evaluation.environments["B"].regret is None
    assert assess(MIXED, [1.0, None, 4.0, None]).regret == 4.0 - 3.0


def test_figures_of_episodes_are_those_of_trials_that_have_several():
    trial = rollout("A", episode([1.0], win=False), episode([3.0], win=True, index=1))
    figures = summarize([record(trial), record(MIXED[2])])
    assert (figures["episode_1/reward"], figures["episode_2/reward"]) == (1.0, 3.0)
    assert (figures["episode_1/win_rate"], figures["episode_2/win_rate"]) == (0.0, 1.0)
    assert figures["exploration_gain"] == figures["env/A/exploration_gain"] == 2.0
    assert "env/B/episode_1/reward" not in figures


def marked(marks, free, index=0):
    infos = ({} if mark is None else {"informing": mark} for mark in marks)
    steps = [step_of(k, info=info) for k, info in enumerate(infos)]
    return episode_of(*steps, index=index, weight=0.0 if free else 1.0)


def test_the_share_of_informing_actions_overall_and_in_free_shots():
    trials = [
        rollout("A", marked([True, True], free=True), marked([False, True], free=False, index=1)),
        # Malformed actions carry no mark: they did not inform. A reflection is no action.
        rollout("A", marked([None], free=True), marked([False], free=False, index=1), task=1),
        rollout("B", marked([None] * 6, free=True), marked([None], free=False, index=1), task=2),
    ]
    note = step_of(1, info={"informing": True}, kind="reflection")
    free, scored = trials[1].episodes
    noted = episode_of(*free.steps, note, weight=0.0)
    trials[1] = redrawn(trials[1], episodes=(noted, scored))
    figures = summarize([record(one) for one in trials])
    assert figures["informing"] == figures["env/A/informing"] == 3 / 6
    assert figures["informing/free_shots"] == 2 / 3 and figures["informing/scored"] == 1 / 3
    assert not any(name.startswith("env/B/informing") for name in figures)
    assert assess(trials).metrics["informing/free_shots"] == 2 / 3
    assert "informing" not in assess(trials[2:]).metrics


def test_an_evaluation_has_the_figures_of_its_trials():
    trial = rollout("A", episode([1.0], win=False), episode([3.0], win=True, index=1))
    evaluation = assess([trial, replace(trial, error="broke"), MIXED[2]])
    assert evaluation.trial == {
        "episode_1/reward": 1.0,
        "episode_1/win_rate": 0.0,
        "episode_2/reward": 3.0,
        "episode_2/win_rate": 1.0,
        "exploration_gain": 2.0,
    }
    assert evaluation.environments["B"].trial == {} == assess(MIXED).trial


def test_a_reflection_is_no_step_of_the_game():
    action = step_of(reward=1.0, done=True, info={"metrics": {"moves": 2.0}})
    note = step_of(1, kind="reflection", truncated=True)
    played = rollout("A", episode_of(action, note))
    figures = summarize([record(played)])
    assert (figures["moves"], figures["steps"], figures["truncated"]) == (2.0, 1, 0.5)


def test_metrics_that_are_no_numbers_are_left_out():
    odd = {"text": "1.0", "list": [1], "nan": math.nan, "fine": True, "reward": 7.0}
    for metrics in (odd, "text", ["a"], None):
        action = step_of(reward=1.0, done=True, info={"metrics": metrics})
        figures = summarize([record(rollout("A", episode_of(action)))])
        assert figures["reward"] == 1.0 and not {"text", "list", "nan"} & set(figures)
    assert summarize([record(rollout("A", episode([1.0], odd)))])["metrics/reward"] == 7.0


class OddEnv(MultistepEnv):
    """Its reference fails where a task has none."""

    def _initialize_episode(self, session_id, task_data):
        return task_data

    def _format_prompt(self, state, step):
        return "?"

    def _step_episode(self, session_id, state, action):
        return state, 1.0, True, {}

    def reference_score(self, task_data):
        return task_data["reference"]


register("tests/Odd", OddEnv)


def test_figures_beyond_all_floats_are_unknown():
    huge = [rollout("A", episode([1e308], {"big": 1e308, "small": 1.0})) for _ in range(3)]
    evaluation = assess(huge, [math.nan, None, 1.0])
    assert set(evaluation.metrics) == {"malformed", "small", "truncated"}
    text = evaluation.model_dump_json()
    assert Evaluation.model_validate_json(text).reward is None
    assert "Infinity" not in json.dumps(json.loads(text))


def test_a_reference_that_cannot_be_told_is_unknown(caplog):
    rows = [{"env_class_path": "tests/Odd", "env_config": {}, "task_data": {}}]
    assert evaluate(rows, ScriptedAgent(["a"]), rollouts=1).evaluation.regret is None
    assert "tests/Odd: the reference score of a task: KeyError" in caplog.text
