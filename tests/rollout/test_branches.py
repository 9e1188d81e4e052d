"""Branches: a recorded rollout is repeated up to an answer, and the agent plays on from there."""

import pickle
import zlib

import numpy as np
import pytest

from agentsgym import DirectOutputAgent, EnvPool, SamplingParams, ScriptedAgent
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import play
from agentsgym.runs.files import RolloutWriter, read_rollouts
from agentsgym.types import GenerationResult, RolloutRequest
from agentsgym.types.requests import Prefix
from agentsgym.types.tool_actions import calling
from envs.program.programs import TOKENIZER, ask, program
from helpers import CHATML, DROPS_THOUGHT, CountdownEnv, build_tokenizer
from rollout.doubles import SumEnv, TextEngine

PLAIN, CHAT, DROPS = (build_tokenizer(template) for template in (None, CHATML, DROPS_THOUGHT))
THREE = {"rewards": [1.0, 2.0, 4.0]}


class ReadingEngine(TextEngine):
    """Says the sum of all that it read: an answer to any other context is another one. `asked` are
    the requests."""

    records_supports = True

    def __init__(self, tokenizer):
        super().__init__(tokenizer)
        self.asked = []

    def answer(self, request):
        self.asked.append(request)
        text = f"<think>hm</think>{zlib.crc32(repr(list(request.token_ids)).encode())}"
        ids = (*self.tokenizer.encode(text), self.tokenizer.eos_token_id)
        return GenerationResult(request.session_id, ids, (-0.5,) * len(ids), text)


def reader(tokenizer):
    return DirectOutputAgent(ReadingEngine(tokenizer), SamplingParams(max_tokens=32))


def branch(env, rollout, nodes, agent, seed=5):
    request = RolloutRequest.branch(rollout, nodes, 7, seed)
    (played,) = play([request], agent, EnvPool(env.tokenizer, envs=[env]))
    return played


def test_the_agent_plays_on_after_the_recorded_answers():
    env = CountdownEnv(PLAIN)
    (trunk,) = env.run_trial([THREE], ScriptedAgent(["a", "b", "c"])).rollouts
    played = branch(env, trunk, 1, ScriptedAgent(["x", "y"]))
    assert played.error is None
    assert [step.action for step in played.steps] == ["a", "x", "y"]
    assert not any(step.sampled for step in played.steps)  # a text agent's words stay that
    assert (played.replayed, played.final_reward, played.index, played.seed) == (1, 7.0, 7, 5)
    assert played.session_id == f"{trunk.session_id}@1-{5:016x}"
    (row,) = played.rows
    assert [span.key for span in row.spans] == [(0, 1), (0, 2)]
    mine = [i for i, on in zip(row.token_ids, row.agent_token_mask, strict=True) if on]
    assert PLAIN.decode(mine) == "xy" and played.agent_tokens == 2
    (before,) = trunk.rows
    same = int(trunk.at[1][1])  # the tokens before the second answer
    assert row.token_ids[:same].tolist() == before.token_ids[:same].tolist()


@pytest.mark.parametrize("tokenizer", [PLAIN, CHAT, DROPS], ids=["plain", "chat", "drops"])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"episodes_per_trial": 2, "carry": "full"},
        {"episodes_per_trial": 2, "carry": "none"},
        {"episodes_per_trial": 2, "carry": "summary", "free_shots": 1},
        {"context_limit": 60},
    ],
    ids=str,
)
def test_a_branch_of_a_reader_is_its_trunk(config, tokenizer, tmp_path):
    """An agent that reads all tokens says the same only where it reads the same; what is repeated
    is context, and the rest carries loss, each token once."""
    env = CountdownEnv(tokenizer, config)
    (trunk,) = env.run_trial([THREE], reader(tokenizer)).rollouts
    assert trunk.error is None and len(trunk.nodes) > 2
    sampled = (trunk.at[:, 2] - trunk.at[:, 1]).tolist()
    for nodes in range(len(trunk.nodes)):
        played = branch(env, trunk, nodes, reader(tokenizer))
        assert played.error is None and played.episodes == trunk.episodes
        assert np.array_equal(played.token_ids, trunk.token_ids)
        assert np.array_equal(played.logprobs, trunk.logprobs)
        assert played.replayed == nodes and played.agent_tokens == sum(sampled[nodes:])
        for row, before in zip(played.rows, trunk.rows, strict=True):
            assert row.token_ids.tolist() == before.token_ids.tolist()
            assert row.begins == before.begins
            assert not row.logprobs[: row.shared].any()
        values = np.arange(1.0, 1 + len(played.token_ids))
        tape = played.on_tape(list(played.by_row(values)))
        first = int(trunk.at[nodes][0])
        assert not tape[:first].any() and tape[first:].tolist() == values[first:].tolist()
    RolloutWriter(tmp_path)([played], {"phase": "train", "step": 0, "advantages": None})
    assert [*read_rollouts(tmp_path)] == [played] == [pickle.loads(pickle.dumps(played))]


def test_the_noise_of_a_branch_belongs_to_the_number_of_its_node():
    """So the answers after actions of other lengths are drawn with the same noise."""
    env = CountdownEnv(PLAIN)
    places = []
    for first in ("a", "no such length"):
        (trunk,) = env.run_trial([THREE], ScriptedAgent([first, "b", "c"])).rollouts
        agent = reader(PLAIN)
        branch(env, trunk, 1, agent)
        places.append([(one.seed, one.sampled_before) for one in agent.engine.asked])
    assert places[0] == places[1] == [(5, 1 << 20), (5, 2 << 20)]


def test_a_branch_that_does_the_same_again_is_the_branch_after_it(tiny_llama, chat_tokenizer):
    """With the same noise; so the effect of an action is 0 there, and need not be played."""
    env = CountdownEnv(chat_tokenizer)
    sampling = SamplingParams(1, temperature=0.04)
    agent = DirectOutputAgent(EmbeddedEngine(tiny_llama, chat_tokenizer), sampling)
    (trunk,) = env.run_trial([THREE], agent).rollouts
    before, after = (
        play(
            [RolloutRequest.branch(trunk, nodes, 0, seed) for seed in range(20)],
            agent,
            EnvPool(chat_tokenizer, envs=[env]),
        )
        for nodes in (1, 2)
    )
    pairs = zip(before, after, strict=True)
    same = [(a, b) for a, b in pairs if a.steps[1].answer == trunk.steps[1].answer]
    assert len({a.steps[2].action for a, _ in same}) > 1 and len(same) < 20
    for a, b in same:
        assert a.token_ids.tolist() == b.token_ids.tolist() and a.episodes == b.episodes


def test_calls_of_tools_are_repeated():
    env = SumEnv(TOKENIZER)
    lines = [calling("price", item="tea"), calling("price", item="milk"), "5"]
    (trunk,) = env.run_trial([{}], ScriptedAgent(lines)).rollouts
    for nodes, left in ((1, lines[1:2]), (2, [])):
        played = branch(env, trunk, nodes, ScriptedAgent([*left, "4"]))
        assert played.error is None and played.steps[:2] == trunk.steps[:2]
        assert (trunk.final_reward, played.final_reward) == (0.0, 1.0)


def test_a_program_is_brought_to_its_second_call():
    def two(task, client):
        return float(ask(client, "One?") + ask(client, "Two?") == "ab")

    env = program(two)
    first, second = (
        DirectOutputAgent(TextEngine(TOKENIZER, text), SamplingParams()) for text in "ab"
    )
    (trunk,) = env.run_trial([{}], first).rollouts
    played = branch(env, trunk, 1, second)
    assert played.error is None and (trunk.final_reward, played.final_reward) == (0.0, 1.0)


# -- what cannot be played on from ---------------------------------------------------------------


class Unsteady(CountdownEnv):
    """Numbers its answers through all sessions."""

    said = 0

    def _step_episode(self, session_id, state, action):
        Unsteady.said += 1
        state, *rest = super()._step_episode(session_id, state, action)
        return state | {"said": Unsteady.said}, *rest

    def _format_prompt(self, state, step):
        return f"Answer {state.get('said', 0)}"


def last_line(rollout):
    return rollout.error.strip().splitlines()[-1]


def test_an_environment_that_answers_otherwise_ends_the_rollout_with_a_sentence():
    env = Unsteady(PLAIN)
    (trunk,) = env.run_trial([THREE], ScriptedAgent(["a", "b", "c"])).rollouts
    played = branch(env, trunk, 2, ScriptedAgent(["x"]))
    assert played.failed and "its environment says 'Answer 4', where it said 'Answer 1'" in (
        last_line(played)
    )
    assert [step.action for step in played.steps] == ["a"] and played.replayed == 2
    assert played.agent_tokens == 0 and not env.active_states


def test_another_template_ends_the_rollout_with_a_sentence():
    (trunk,) = CountdownEnv(CHAT).run_trial([THREE], ScriptedAgent(["a", "b", "c"])).rollouts
    played = branch(CountdownEnv(PLAIN), trunk, 1, ScriptedAgent(["x"]))
    assert "its messages have other tokens with this model's tokenizer" in last_line(played)


def test_an_environment_that_plays_its_episodes_itself_has_no_branches():
    class Own(CountdownEnv):
        def _run_complete_episode(self, session_id, agent):
            return super()._run_complete_episode(session_id, agent)

    env = Own(PLAIN)
    (trunk,) = env.run_trial([THREE], ScriptedAgent(["a", "b", "c"])).rollouts
    played = branch(env, trunk, 1, ScriptedAgent(["x"]))
    assert "Own plays its episodes itself: it cannot be branched" in last_line(played)


def test_there_is_no_branch_at_an_answer_that_was_not_given():
    (trunk,) = CountdownEnv(PLAIN).run_trial([{}], ScriptedAgent(["a", "fail"])).rollouts
    assert trunk.failed and Prefix(trunk, 1).nodes == 1
    for nodes in (-1, 2):
        with pytest.raises(ValueError, match=f"has 2 answers.*from number {nodes}"):
            RolloutRequest.branch(trunk, nodes, 0, 0)
