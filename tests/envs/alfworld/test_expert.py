"""The planner as an agent; what the engine does to its process stays contained."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import agentsgym
from agentsgym import ScriptedAgent
from agentsgym.agents.scripted import scripted_agent
from agentsgym.envs.command_game import ExpertAgent


def test_it_wins_every_type_in_the_fewest_steps_known(tasks):
    env = agentsgym.make("ALFWorld", None, {"workers": 0})
    batch = env.run_trial(list(tasks.values()), ExpertAgent())
    assert batch["final_rewards"] == [1.0] * 6, [r.error for r in batch.rollouts]
    steps = [len(rollout.episodes[0].steps) for rollout in batch.rollouts]
    assert steps == [len(env.expert_plan(task)) for task in tasks.values()]
    assert [env.reference_score(task) for task in tasks.values()] == [1.0] * 6
    assert scripted_agent(env, "optimal").__class__ is ExpertAgent


def test_it_plans_anew_after_what_others_did(task):
    env = agentsgym.make("ALFWorld", None, {"workers": 0})

    class DetourFirst(ExpertAgent):
        def for_session(self, session):
            expert, detours = super().for_session(session), iter(["help", "nonsense", "inventory"])
            return ScriptedAgent(
                lambda messages: next(detours, None) or expert.get_action(messages, None)[0]
            )

    batch = env.run_trial([task], DetourFirst())
    assert batch["final_rewards"] == [1.0]
    steps = len(batch.rollouts[0].episodes[0].steps)
    assert steps == 3 + len(env.expert_plan(task))


def test_a_plan_beyond_the_limit_scores_nothing(task):
    env = agentsgym.make("ALFWorld", None, {"max_steps_per_episode": 2})
    assert env.reference_score(task) == 0.0


# -- the engine in its process ---------------------------------------------------------------------


def test_argv_stdout_and_environment_are_back(task, monkeypatch, capsys):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    argv, stdout = sys.argv, sys.stdout
    env = agentsgym.make("ALFWorld", None, {"workers": 0})
    env.run_trial([task], ExpertAgent())
    assert sys.argv is argv
    assert sys.stdout is stdout
    assert "ALFWORLD_DATA" not in os.environ
    assert capsys.readouterr().out == ""


def test_threads_of_this_process_play_as_if_alone(tasks):
    def play(task):
        env = agentsgym.make("ALFWorld", None, {"workers": 0, "dense_reward": 1.0})
        script = ScriptedAgent([*env.expert_plan(task)[:3], "look", "help"])
        return env.run_trial([task], script)["final_completion_messages"]

    some = [*tasks.values()][::2]
    alone = [play(task) for task in some]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(play, some)) == alone
