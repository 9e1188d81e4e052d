"""Agents that are told more than the conversation."""

from unittest.mock import Mock

import pytest
from doubles import FactsEnv

from agentsgym import DirectOutputAgent, SamplingParams
from agentsgym.agents.scripted import RandomAgent
from agentsgym.types import PrivilegedAgent
from helpers import CountdownEnv

TRIAL = {"episodes_per_trial": 2, "free_shots": 1, "carry": "summary"}
TASK = {"rewards": [0.0, 1.0]}


class Listed(FactsEnv):
    def admissible_actions(self, state):
        return [f"action {len(state['played'])}"]


class Asks(PrivilegedAgent):
    """Writes down what its session says whenever it is asked for an action."""

    def __init__(self):
        self.records = []

    def for_session(self, session):
        def get_action(messages, agent_state):
            trial = session.trial
            self.records.append(
                (
                    type(session.env),
                    dict(session.task_data),
                    (trial.episode, trial.scored, len(trial.outcomes), trial.last_state),
                    session.actions,
                    session.asks_for_note,
                    list(session.admissible_actions() or ()),
                )
            )
            return f"say {len(self.records)}", None

        return Mock(spec=["get_action"], get_action=get_action)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_agent_sees_the_session_as_it_stands(workers):
    agent = Asks()
    env = Listed(None, {**TRIAL, "workers": workers})
    [rollout] = env.run_trial([TASK], agent).rollouts
    assert rollout.error is None
    first, second = (0, False, 0, None), (1, True, 1, None)
    assert agent.records == [
        (Listed, TASK, first, (), False, ["action 0"]),
        (Listed, TASK, first, ("say 1",), False, ["action 1"]),
        (Listed, TASK, first, ("say 1", "say 2"), True, ["action 2"]),
        (Listed, TASK, second, (), False, ["action 0"]),
        (Listed, TASK, second, ("say 4",), False, ["action 1"]),
    ]


def test_an_engine_of_its_own_samples_with_its_own_settings(tiny_llama, chat_tokenizer):
    """for_session may return an agent with an engine, whose settings are then the session's."""
    # Here, because worker processes import this file for `Listed` and are to stay without torch.
    from agentsgym.generation import EmbeddedEngine

    engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=2)
    model = DirectOutputAgent(engine, SamplingParams(max_tokens=3, temperature=0.0))

    class Delegates(PrivilegedAgent):
        def for_session(self, session):
            return model

    env = CountdownEnv(chat_tokenizer, {**TRIAL, "reflection_tokens": 2})
    released, release = [], engine.release
    engine.release = lambda ids: (released.extend(ids), release(ids))
    [rollout] = env.run_trial([TASK], Delegates()).rollouts
    assert rollout.error is None and rollout.rows[0].sampled
    assert set(released) == {rollout.session_id}
    lengths = [span.length for row in rollout.rows for span in row.spans]
    assert lengths == [3, 3, 2, 3, 3]
    [expected] = env.run_trial([TASK], model).rollouts
    assert [row.token_ids.tolist() for row in rollout.rows] == [
        row.token_ids.tolist() for row in expected.rows
    ]


def test_a_mock_is_asked_as_it_is():
    agent = Mock()
    agent.get_action.return_value = ("x", None)
    [rollout] = CountdownEnv().run_trial([TASK], agent).rollouts
    assert not rollout.failed and agent.get_action.call_count == 2
    assert not agent.for_session.called


def test_a_conversation_alone_is_refused():
    with pytest.raises(LookupError, match="Asks needs a session, not only its messages"):
        Asks().get_action([{"role": "user", "content": "hello"}], None)
    with pytest.raises(TypeError, match="for_session"):
        PrivilegedAgent()


@pytest.mark.parametrize("actions", [{"say 1"}, "say 1", [1], iter(["say 1"])])
def test_actions_that_are_no_list_of_texts_are_named(actions):
    env = Listed(None, {"episodes_per_trial": 1})
    env.admissible_actions = lambda state: actions
    [rollout] = env.run_trial([TASK], RandomAgent(env)).rollouts
    assert "admissible_actions must return a list of str, got" in rollout.error
