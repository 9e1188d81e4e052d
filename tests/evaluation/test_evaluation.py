"""Evaluations of agents on toy environments, with figures computed by hand."""

from typing import Any

import pytest

from agentsgym import DirectOutputAgent, MultistepEnv, SamplingParams, ScriptedAgent, task_dataset
from agentsgym.envs import EnvPool, EnvSettings, register
from agentsgym.evaluation import (
    assess,
    default_cluster,
    evaluate,
    evaluate_requests,
    rollout_requests,
    select,
)
from agentsgym.generation.embedded.engine import EmbeddedEngine


class QuizEnv(MultistepEnv):
    """Three tries to say the solution; wins are told on the last step only."""

    class Settings(EnvSettings):
        max_steps_per_episode: int = 3

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> str:
        if task_data.get("broken"):
            raise RuntimeError("this task is broken")
        return task_data["solution"]

    def _format_prompt(self, state, step):
        return "What is it?"

    def _step_episode(self, session_id, state, action):
        win = action == state
        info = {"metrics": {"vowels": sum(c in "aeiou" for c in action)}}
        return state, float(win), win, info | ({"win": True} if win else {})

    def reference_score(self, task_data):
        return task_data.get("reference")


register("tests/Quiz", QuizEnv)


def rows(*tasks: dict[str, Any], **config: Any) -> list[dict[str, Any]]:
    return list(task_dataset(QuizEnv(None, config), tasks))


def test_figures_by_hand():
    data = rows(
        {"solution": "ox", "seed": 0, "reference": 1.0},
        {"solution": "cat", "seed": 1, "reference": 0.5},
        {"solution": "emu", "seed": 2, "reference": 1.0},
        {"solution": "cat", "seed": 3, "reference": 0.5},
    )
    # Says "emu", then "cat", then "cat" again: ox is lost in 3 steps, cat won in 2, emu in 1.
    figures = evaluate(data, ScriptedAgent(["emu", "cat"]), rollouts=4).evaluation
    assert (figures.rollouts, figures.tasks, figures.clusters, figures.failures) == (4, 4, 3, 0)
    # An episode that the limit ended tells no win: it counts as lost.
    assert figures.win_rate == figures.reward == 0.75
    assert figures.mean_steps == (3 + 2 + 1 + 2) / 4
    assert figures.reference == 0.75 and figures.regret == 0.0
    assert figures.stop_reasons == {"done": 3, "max_steps": 1}
    # emu has 2 vowels, cat 1: (2+1+1) + (2+1) + 2 + (2+1) over 8 steps.
    assert figures.metrics["vowels"] == 12 / 8
    assert figures.ci95[0] <= 0.75 <= figures.ci95[1]


def test_failures_are_counted_and_left_out():
    data = rows({"solution": "cat"}, {"solution": "dog", "broken": True})
    played = evaluate(data, ScriptedAgent(["cat"]), rollouts=2)
    figures = played.evaluation
    assert (figures.rollouts, figures.failures, figures.win_rate) == (2, 1, 1.0)
    assert "this task is broken" in next(r.error for r in played.rollouts if r.failed)


def test_all_failed_gives_no_figures():
    figures = evaluate(rows({"solution": "a", "broken": True}), ScriptedAgent(["a"])).evaluation
    assert figures.failures == figures.rollouts == 256
    assert figures.win_rate is None and figures.ci95 is None and figures.regret is None
    assert figures.reward is None and figures.mean_steps is None


def test_free_shots_do_not_count():
    data = rows({"solution": "cat"}, episodes_per_trial=2, free_shots=1)
    # The first episode (free) ends with "cat" at its third step, the second with its first.
    figures = evaluate(data, ScriptedAgent(["a", "b", "cat"]), rollouts=1).evaluation
    assert figures.win_rate == 1.0 and figures.mean_steps == 4
    assert figures.stop_reasons == {"done": 1}


def test_an_environment_without_wins_has_a_reward_only():
    class Mute(QuizEnv):
        def _step_episode(self, session_id, state, action):
            return state, 2.0, True, {}

    register("tests/Mute", Mute)
    data = list(task_dataset(Mute(), [{"solution": "a"}]))
    figures = evaluate(data, ScriptedAgent(["x"]), rollouts=3).evaluation
    assert figures.win_rate is None and figures.reward == 2.0
    assert figures.reward_ci95 == (None, None)  # one task tells nothing about others


def test_select_spreads_over_clusters():
    data = rows(*({"solution": s, "seed": k} for s in "abc" for k in range(5)))
    for count, most in ((3, 1), (4, 2), (6, 2), (15, 5)):
        chosen = [
            data[i]["task_data"]["solution"]
            for i in select(data, count, seed=1, cluster=default_cluster)
        ]
        assert len(chosen) == count and max(map(chosen.count, chosen)) == most
    assert select(data, 99, cluster=default_cluster) == list(range(15))


def test_requests_repeat_tasks_only_as_needed():
    data = rows(*({"solution": s} for s in "abc"))
    assert [(p.group, p.index) for p in rollout_requests(data, 5)] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
    ]
    twice = rollout_requests(data, 4, rollouts_per_task=2)
    assert [(p.group, p.index) for p in twice] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({p.seed for p in twice}) == 4
    assert twice == rollout_requests(data, 4, rollouts_per_task=2)
    assert twice != rollout_requests(data, 4, rollouts_per_task=2, seed=1)


@pytest.mark.parametrize("wrong", [{"rollouts": 0}, {"rollouts": 1, "rollouts_per_task": 0}])
def test_bad_numbers_are_named(wrong):
    with pytest.raises(ValueError, match=r"must be at least 1, got 0"):
        rollout_requests(rows({"solution": "a"}), **wrong)
    with pytest.raises(ValueError, match="no tasks"):
        rollout_requests([], 1)


def test_clusters_without_a_solution_are_equal_tasks():
    assert default_cluster({"a": 1, "b": 2}) == default_cluster({"b": 2, "a": 1})
    assert default_cluster({"solution": "x", "seed": 1}) == "x"
    assert default_cluster({"solution": ["x", "y"]}) == '["x", "y"]'


def test_a_model_is_evaluated_with_paired_noise(tiny_llama, chat_tokenizer):
    data = rows(*({"solution": s} for s in "abcd"))
    agent = DirectOutputAgent(
        EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=8), SamplingParams(max_tokens=4)
    )
    first, second = (evaluate(data, agent, rollouts=8, seed=5) for _ in range(2))
    assert first == second
    assert first.evaluation == assess(first.rollouts, seed=5)
    assert first.rollouts != evaluate(data, agent, rollouts=8, seed=6).rollouts


def test_a_model_plays_only_what_is_not_stored(tiny_llama, chat_tokenizer):
    data = rows(*({"solution": s} for s in "abcd"))
    requests = rollout_requests(data, 8, seed=5)
    agent = DirectOutputAgent(
        EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=3), SamplingParams(max_tokens=4)
    )
    whole = evaluate_requests(requests, agent, EnvPool(chat_tokenizer), seed=5)
    stored = {rollout.session_id: rollout for rollout in whole.rollouts[::2]}
    rollouts = []
    again = evaluate_requests(
        requests, agent, EnvPool(chat_tokenizer), seed=5, stored=stored, on_rollout=rollouts.append
    )
    assert again.evaluation == whole.evaluation
    assert [r.episodes for r in again.rollouts] == [r.episodes for r in whole.rollouts]
    assert sorted(r.session_id for r in rollouts) == [r.session_id for r in whole.rollouts[1::2]]


def test_bad_rows_are_refused_before_anything_is_played():
    data = rows({"solution": "a"}, {"solution": "b"})
    for wrong in ({"train": data, "test": data}, "rows", iter(data)):
        with pytest.raises(ValueError, match="rows must be a list or dataset of rows"):
            evaluate(wrong, ScriptedAgent(["a"]))
    for count in (1, 9):  # fewer than there are, so that some are drawn, and more
        with pytest.raises(ValueError, match="row 1: 'task_data' must be a dict, got None"):
            bad = {**data[1], "task_data": None}
            evaluate([data[0], bad], ScriptedAgent(["a"]), rollouts=count)
