"""What the random player and the best constant action earn."""

import pytest

from agentsgym import MultistepEnv, ScriptedAgent, task_dataset
from agentsgym.envs import EnvPool
from agentsgym.evaluation import evaluate_requests, rollout_requests
from agentsgym.runs.evaluate import simple_players


class Coin(MultistepEnv):
    """Pays 1 for heads in three of four tasks, for tails in the other one."""

    def _initialize_episode(self, session_id, task_data):
        return "tails" if task_data["seed"] % 4 == 0 else "heads"

    def _format_prompt(self, state, step):
        return "Call it."

    def _step_episode(self, session_id, state, action):
        if action == "break":
            raise RuntimeError("it broke")
        return state, float(action == state), True, {}

    def admissible_actions(self, state):
        return ["heads", "tails"]

    def get_eval_dataset(self):
        return task_dataset(self, [{"seed": k} for k in range(128)])


def played(env, requests, actions):
    """A model's rollouts that say these actions."""
    agent = ScriptedAgent(lambda messages: actions.pop())
    return evaluate_requests(requests, agent, EnvPool(None, envs=[env])).rollouts


@pytest.fixture
def requests():
    return rollout_requests(list(Coin().get_eval_dataset()), 128)


def test_the_best_of_the_models_own_actions_is_kept(requests):
    """64 of the tasks are played, every second one, so tails wins in half of them."""
    said = ["tails"] * 100 + ["heads"] * 28
    earned = simple_players(Coin(), requests, played(Coin(), requests, said), 0)
    assert set(earned) == {"random", "always 'tails'"} or set(earned) == {
        "random",
        "always 'heads'",
    }
    assert max(r for n, r in earned.items() if n != "random") == pytest.approx(0.5)
    assert 0.3 < earned["random"] < 0.7


def test_an_action_of_the_random_player_may_be_the_best_constant(requests):
    earned = simple_players(Coin(), requests, played(Coin(), requests, ["none"] * 128), 0)
    assert set(earned) in ({"random", "always 'tails'"}, {"random", "always 'heads'"})


def test_one_that_waits_for_others_is_not_played(requests):
    env = Coin()
    env.blocking = True
    assert simple_players(env, requests, [], 0) == {}


class Solved(Coin):
    """Says what falls, so its best player wins always."""

    def _format_prompt(self, state, step):
        return f"It will be {state}."

    def optimal_agent(self):
        return ScriptedAgent(lambda messages: messages[-1]["content"].split()[-1].rstrip("."))


def test_the_best_player_plays_where_no_reference_is_known(monkeypatch):
    requests = rollout_requests(list(Solved().get_eval_dataset()), 128)
    said = ["tails"] * 128
    earned = simple_players(Solved(), requests, played(Solved(), requests, said), 0)
    assert earned["optimal"] == 1.0 and set(earned) == {"random", "optimal", "always 'tails'"}
    monkeypatch.setattr(Solved, "reference_score", lambda self, task: 1.0)
    known = simple_players(Solved(), requests, played(Solved(), requests, ["tails"] * 128), 0)
    assert "optimal" not in known
